"""``hmerctl doctor``: the targets, what each needs, and whether that is here."""

import typer

from hmerctl.commands.common import print_json, print_table


def doctor(
    target: str | None = typer.Argument(None, help="Only this target."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """List the targets with what they need to build, prove and run, what of it is here, and how to get the rest.

    Always ends with exit code 0: a target that cannot be built here may be somebody else's.
    """
    from hmerctl.targets.base import find, names

    chosen = [find(name) for name in ([target] if target else names())]
    if as_json:
        print_json(
            [
                {"target": t.name, "summary": t.summary, "precisions": t.precisions, "requirements": t.requirements()}
                for t in chosen
            ]
        )
        return
    for one in chosen:
        rows = [(r.name, r.needed_for, r.found or "MISSING", "" if r.found else r.how) for r in one.requirements()]
        title = f"{one.name}: {one.summary} ({', '.join(one.precisions)})"
        print_table(["needs", "to", "here", "how to get it"], rows, title=title)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("doctor")(doctor)
