"""The rules of every store as steps on Python values, and the store in memory."""
