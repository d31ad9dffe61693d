"""Django tests of the admin and the dashboard: run by `manage.py test` of the example (test_django_admin.py)."""
