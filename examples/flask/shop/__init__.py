"""A shop that confirms orders in the background.

flask --app shop run                                   the shop, with the dashboard on /queue/ (password secret)
flask --app shop holdfast worker start --foreground    a worker
python -m pytest                                       its tests
"""

import os
import secrets

from flask import Flask, redirect, request, session

from holdfast.contrib.flask import dashboard, init_app

from .tasks import confirm, queue


def create_app(**config: object) -> Flask:
    app = Flask(__name__)
    app.config.update(SECRET_KEY=os.environ.get("SHOP_SECRET") or secrets.token_hex(), SHOP_PASSWORD="secret")
    app.config.update(SHOP_NAME="Lamps & Co", HOLDFAST_URL="sqlite:///shop.db", SESSION_COOKIE_SAMESITE="Lax")
    app.config.update(config)
    init_app(app, queue)
    app.register_blueprint(dashboard(queue, guard=admins_only), url_prefix="/queue")

    @app.post("/orders/<int:number>")
    def order(number: int):
        return {"job": confirm.sync.enqueue(number).id}, 202

    @app.route("/login", methods=["GET", "POST"])
    def login():
        given = request.form.get("password", "").encode()
        if secrets.compare_digest(given, app.config["SHOP_PASSWORD"].encode()):
            session["admin"] = True
            return redirect("/queue/")
        return '<form method="post"><input name="password" type="password"><button>Log in</button></form>'

    return app


def admins_only():
    """Refuse a request to the dashboard, or return None."""
    return None if session.get("admin") else redirect("/login")
