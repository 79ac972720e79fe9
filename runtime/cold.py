"""One cold start, run as a fresh process: ``python -m hmerctl.runtime.cold '{"bundle": ..., "ink": ...}'``.

Prints JSON: milliseconds to import the runtime, to verify and load the bundle, and to answer the first query, and the
peak memory of the whole.
"""

import json
import sys
import time


def main() -> None:
    """Start, answer one query, and report."""
    wanted = json.loads(sys.argv[1])
    started = time.perf_counter()
    from hmerctl.runtime.device import peak_memory
    from hmerctl.runtime.recognizer import Recognizer

    imported = time.perf_counter()
    recognizer = Recognizer(wanted["bundle"], beams=wanted["beams"], threads=wanted["threads"])
    loaded = time.perf_counter()
    recognizer.recognize(wanted["ink"])
    answered = time.perf_counter()
    report = {
        "import_ms": 1000 * (imported - started),
        "load_ms": 1000 * (loaded - imported),
        "first_ms": 1000 * (answered - loaded),
        "peak_memory_bytes": peak_memory(),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
