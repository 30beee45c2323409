"""`nhc job submit`: submit a job so that it is restarted after infrastructure faults."""

from __future__ import annotations

import os
from typing import Any, Sequence

import click

from nhc.core.command_line.command_error import CommandError
from nhc.core.command_line.common_options import GroupedCommand, under
from nhc.core.model import printable
from nhc.core.system.bounded_read import cause, read_text
from nhc.marks.plugins import job_controller
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.job_control import JobSubmits, Submission, Wish

MANIFEST = 4 << 20
"""Bytes of a file of manifests."""


@click.command("submit", cls=GroupedCommand, context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, metavar="[-- SBATCH-OPTIONS SCRIPT]")
@under("What is submitted")("--file", "file", default="", metavar="FILE", help="Manifests for Kubernetes (YAML).")
@under("What is submitted")(
    "--controller", default="", metavar="NAME", help="Default: kubernetes with --file, else slurm."
)
@under("How it is restarted")("--auto-resume/--no-auto-resume", default=True, show_default=True,
                              help="Ask to be restarted.")  # fmt: skip
@under("How it is restarted")("--max-restarts", "--max-retry", type=click.IntRange(0, 1000), default=None, metavar="N",
                              help="At most so often. Default: as often as the site allows.")  # fmt: skip
@under("How it is restarted")("--checkpoint", default="", metavar="PATH",
                              help="Passed through to the job as NHC_CHECKPOINT.")  # fmt: skip
@under("How it is restarted")("--spares", type=click.IntRange(0, 1000), default=0, metavar="N",
                              help="Slurm: so many nodes more, for `nhc job step`.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Show what would be sent; submit nothing.")
@under("Where")("--kubeconfig", default="", metavar="FILE", help="Default: KUBECONFIG, or the pod's own account.")
@under("Where")("--context", default="", metavar="NAME", help="A context of the kubeconfig.")
@under("Where")("--namespace", default="", metavar="NAME", help="For manifests that name none.")
def command(words: Sequence[str], **options: Any) -> None:
    """Submit a job to Slurm (words for sbatch) or to Kubernetes (--file), with what lets nhc restart it.

    Exit status: 0 submitted or shown, 1 refused by the scheduler, 2 wrong usage, 3 nobody answered: it may have been
    submitted.
    """
    if bool(words) == bool(options["file"]):
        raise CommandError("say what to submit: words for sbatch, or --file FILE for Kubernetes", 2)
    if any(character.isspace() for character in options["checkpoint"]):
        raise CommandError(f"--checkpoint: {options['checkpoint']!r} holds a space", 2)
    name = options["controller"] or ("kubernetes" if options["file"] else "slurm")
    text = ""
    if options["file"]:
        try:
            text = read_text(options["file"], MANIFEST)
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"{options['file']}: {cause(error)}", 2) from None
    wish = Wish(options["max_restarts"], options["checkpoint"]) if options["auto_resume"] else None
    settings = {key: options[key] for key in ("kubeconfig", "context") if options[key]}
    try:
        controller: object = job_controller(name)(settings, os.environ, 30.0)
    except AdapterError as error:
        raise CommandError(str(error), 2) from None
    if not isinstance(controller, JobSubmits):
        raise CommandError(f"{name} takes no jobs", 2)
    done = controller.submit(
        Submission(tuple(words), text, options["namespace"], wish, options["spares"], options["dry_run"])
    )
    if done.rendered:
        click.echo(done.rendered.rstrip("\n"))
    for job in done.jobs:
        click.echo(printable(job))
    if done.problem:
        raise CommandError(done.problem, 3 if done.ambiguous else 1)
