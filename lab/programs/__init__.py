"""One app in every kind of program: is every acknowledged job stored, and do files and threads stay few?"""
