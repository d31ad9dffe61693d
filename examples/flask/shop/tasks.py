"""The shop's tasks; they run in the context of the Flask application."""

from flask import current_app

from holdfast import Holdfast

queue = Holdfast()


@queue.task
def confirm(number: int) -> str:
    return f"{current_app.config['SHOP_NAME']} confirms order {number}"
