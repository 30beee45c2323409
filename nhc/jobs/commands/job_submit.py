"""`nhc job submit`: submit a job so that it is restarted after infrastructure faults."""

from __future__ import annotations

import os
from typing import Optional, Sequence

import click

from nhc.core.command_line import options
from nhc.core.command_line.command_error import CommandError
from nhc.core.command_line.common_options import click_command
from nhc.core.model import printable
from nhc.core.system.bounded_read import cause, read_text
from nhc.marks.plugins import job_controller
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.job_control import JobSubmits, Submission, Wish

MANIFEST = 4 << 20
"""Bytes of a file of manifests."""


class JobSubmitOptions(options.CommandOptions):
    words: Sequence[str] = options.arguments("[-- SBATCH-OPTIONS SCRIPT]", foreign=True)
    file: str = options.text("--file", "FILE", "Manifests for Kubernetes (YAML).", heading="What is submitted")
    controller: str = options.text("--controller", "NAME", "Default: kubernetes with --file, else slurm.")
    auto_resume: bool = options.flag(
        "--auto-resume/--no-auto-resume", "Ask to be restarted.", True, heading="How it is restarted"
    )
    max_restarts: Optional[int] = options.whole(
        "--max-restarts --max-retry", "N", "At most so often. Default: as often as the site allows.", least=0, most=1000
    )
    checkpoint: str = options.text("--checkpoint", "PATH", "Passed through to the job as NHC_CHECKPOINT.")
    spares: int = options.whole(
        "--spares", "N", "Slurm: so many nodes more, for `nhc job step`.", 0, least=0, most=1000
    )
    dry_run: bool = options.flag("--dry-run", "Show what would be sent; submit nothing.", heading="Other")
    kubeconfig: str = options.text(
        "--kubeconfig", "FILE", "Default: KUBECONFIG, or the pod's own account.", heading="Where"
    )
    context: str = options.text("--context", "NAME", "A context of the kubeconfig.")
    namespace: str = options.text("--namespace", "NAME", "For manifests that name none.")


@click_command
def command(args: JobSubmitOptions) -> None:
    """Submit a job to Slurm (words for sbatch) or to Kubernetes (--file), with what lets nhc restart it.

    Exit status: 0 submitted or shown, 1 refused by the scheduler, 2 wrong usage, 3 nobody answered: it may have been
    submitted.
    """
    if bool(args.words) == bool(args.file):
        raise CommandError("say what to submit: words for sbatch, or --file FILE for Kubernetes", 2)
    if any(character.isspace() for character in args.checkpoint):
        raise CommandError(f"--checkpoint: {args.checkpoint!r} holds a space", 2)
    name = args.controller or ("kubernetes" if args.file else "slurm")
    text = ""
    if args.file:
        try:
            text = read_text(args.file, MANIFEST)
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"{args.file}: {cause(error)}", 2) from None
    wish = Wish(args.max_restarts, args.checkpoint) if args.auto_resume else None
    settings = {key: value for key in ("kubeconfig", "context") if (value := getattr(args, key))}
    try:
        controller: object = job_controller(name)(settings, os.environ, 30.0)
    except AdapterError as error:
        raise CommandError(str(error), 2) from None
    if not isinstance(controller, JobSubmits):
        raise CommandError(f"{name} takes no jobs", 2)
    done = controller.submit(Submission(tuple(args.words), text, args.namespace, wish, args.spares, args.dry_run))
    if done.rendered:
        click.echo(done.rendered.rstrip("\n"))
    for job in done.jobs:
        click.echo(printable(job))
    if done.problem:
        raise CommandError(done.problem, 3 if done.ambiguous else 1)
