"""``hmerctl doctor``: the targets, what each needs, and whether that is here."""

import typer

from hmerctl.commands.common import fail, print_json, print_table


def doctor(
    target: str | None = typer.Argument(None, help="Only this target."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """List the targets with what they need to build, prove and run, what of it is here, and how to get the rest.

    Ends with exit code 0 whatever is missing: a target that cannot be built here may be somebody else's. A target
    whose package cannot be imported is one line on stderr, below the others.
    """
    from hmerctl.targets.base import Target, TargetError, find, names

    chosen: list[Target] = []
    broken: dict[str, TargetError] = {}
    for name in [target] if target else names():
        try:
            chosen.append(find(name))
        except TargetError as error:
            if target:
                raise
            broken[name] = error
    if as_json:
        rows: list[dict[str, object]] = [
            {"target": t.name, "summary": t.summary, "precisions": t.precisions, "requirements": t.requirements()}
            for t in chosen
        ]
        print_json([*rows, *({"target": name, "error": str(error)} for name, error in broken.items())])
        return
    for one in chosen:
        needs = [(r.name, r.needed_for, r.found or "MISSING", "" if r.found else r.how) for r in one.requirements()]
        title = f"{one.name}: {one.summary} ({', '.join(one.precisions)})"
        print_table(["needs", "to", "here", "how to get it"], needs, title=title)
    for fault in broken.values():
        fail(fault)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("doctor")(doctor)
