# python3 -m ringtrain_data convert, and chat: see their --help.
import argparse
import json
import signal
import sys

from . import Refused, convert, rows


# Add the options that say how conversations are written.
def add_template(add):
    add("--chat-template", metavar="FILE", help="a template to use instead of the tokenizer's")
    add("--template-options", type=json.loads, default={}, metavar="JSON",
        help="""what to pass to the template in addition to the messages, such as '{"enable_thinking": false}'""")


def add_chat(commands):
    parser = commands.add_parser(
        "chat", help="talk with a model",
        description="Talk with a model: each line of the standard input is a message, which the model answers.")
    add = parser.add_argument
    add("--checkpoint", required=True, metavar="PATH", help="a run, a checkpoint, or a model's folder")
    add("--system", metavar="TEXT", help="the system message")
    add("--max-tokens", type=int, default=512, metavar="N", help="largest number of tokens in an answer (default: 512)")
    add("--generate", metavar="FILE", help="the program generate (default: from RINGTRAIN_BIN, PATH, or this build)")
    add_template(add)
    add("flags", nargs="*", metavar="-- FLAG", help="more flags of generate: -- --temperature 0.8 --mesh 1x2")
    parser.set_defaults(run=run_chat)


def run_chat(**options):
    from .chat import chat
    chat(**options)


def add_convert(commands):
    parser = commands.add_parser(
        "convert", help="make a token file from a data set",
        description="Make a token file from .parquet, .arrow, .json, .jsonl and .csv files (.gz and .zst, too), from "
                    "a data set's folder, or from tokens in .npy and .bin. A row is a text, a prompt with its "
                    "completion, an instruction, a conversation, or tokens, as its columns say.")
    add = parser.add_argument
    add("--input", dest="inputs", nargs="+", required=True, metavar="PATH",
        help="files, or folders of data sets from the hub")
    add("--tokenizer", required=True, metavar="DIR", help="a model's folder, with its tokenizer.json")
    add("--output", required=True, metavar="FILE.h5", help="the token file to make; it must not exist yet")
    add("--field", metavar="NAME", help="the column to read (default: the one whose name is known)")
    add("--split", default="train", metavar="NAME", help="the split to read from a data set's folder (default: train)")
    add("--subset", metavar="NAME", help="the subset to read from a data set's folder that has several")
    add("--learn", choices=("answers", "last"), default="answers",
        help="what to learn from a conversation: all answers, or only the last one (default: answers)")
    add_template(add)
    add("--document-start", choices=("tokenizer", "none"), default="tokenizer",
        help="how texts begin: as the tokenizer begins them, or with their own text (default: tokenizer)")
    add("--document-end", metavar="TOKEN", help="the special token after each document (default: the tokenizer's own)")
    add("--offsets", metavar="FILE", help="offsets at which documents begin and the last ends (.npy, or .bin of int64)")
    add("--dtype", choices=("uint16", "uint32", "int32", "int64"), help="type of the tokens in a .bin file")
    add("--validation-fraction", type=float, default=0.1, metavar="X",
        help="share of the documents that training never sees (default: 0.1)")
    add("--seed", type=int, default=1234, metavar="S", help="seed that shuffles the documents (default: 1234)")
    add("--skip-broken-rows", action="store_true", help="leave broken rows out and count them")
    parser.set_defaults(run=run_convert)


def run_convert(inputs, split, subset, dtype, offsets, document_start, **options):
    found = rows.rows(inputs, split, subset, dtype, offsets)
    print(convert(found, placed=True, document_start=document_start != "none", **options))


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python3 -m ringtrain_data",
                                     description="Converts data sets to token files, and talks with models.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add_convert(commands)
    add_chat(commands)
    options = vars(parser.parse_args(arguments))
    for stop in (signal.SIGINT, signal.SIGTERM):
        signal.signal(stop, lambda number, _: sys.exit(128 + number))  # after temporary files are removed
    try:
        options.pop("run")(**options)
    except (Refused, OSError, ImportError) as error:
        advice = "; pip install transformers jinja2 pyarrow h5py xxhash" if isinstance(error, ImportError) else ""
        print(f"ringtrain_data: {error}{advice}", file=sys.stderr)
        return getattr(error, "code", 2)
    return 0


if __name__ == "__main__":
    sys.exit(main())
