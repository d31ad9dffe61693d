"""Cron and interval schedules."""
