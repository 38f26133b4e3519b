#!/usr/bin/env python3
"""tutorials.py SOURCE_FOLDER: fails unless docs/tutorials.map answers each row of the tutorials and
finds each word that their readers search for, and what it names is there and is run by tests.
"""
import pathlib
import re
import sys

from pages import read_page

ROWS = 37
WORDS = {
    "en": "DataParallel, DistributedDataParallel, torch.distributed.launch, torchrun, nproc_per_node, "
          "local_rank, world_size, init_process_group, init_method, nccl, gloo, CUDA_VISIBLE_DEVICES, "
          "device_ids, output_device, module., state_dict, map_location, DistributedSampler, set_epoch, "
          "pin_memory, num_workers, batch_size, SyncBatchNorm, amp, find_unused_parameters, no_sync, "
          "set_default_tensor_type, set_device, address already in use, zombie process",
    "zh": "单机多卡, 多机多卡, 分布式训练, 数据并行, 主卡, 负载不均衡, 参数服务器, 显存, 显存占用, 卡死, 锁页内存, "
          "采样器, 随机种子, 断点续训, 保存模型, 加载模型, 多进程, 进程组, 梯度平均, 同步批归一化, 混合精度, 指定GPU, "
          "端口被占用, 僵尸进程",
}
PAGES = {"en": "from_pytorch.md", "zh": "from_pytorch.zh.md"}


def parse(text):
    """Two lists, as the map's head describes: (line, row, [(line, kind, target)]) and (line,
    language, section, words)."""
    rows, words = [], []
    for number, line in enumerate(text.split("\n"), 1):
        row = re.match(r"row (\d+): .+", line)
        head = re.match(r"words (\w+), (.+)", line)
        answer = re.match(r"  (block|text|example): (.+)", line)
        if row:
            rows.append((number, int(row[1]), []))
        elif head:
            words.append((number, head[1], head[2], []))
        elif answer and rows and not words:
            rows[-1][2].append((number, answer[1], answer[2]))
        elif line.startswith("  ") and words:
            words[-1][3].extend(line.strip().split(", "))
        elif line and not line.startswith("#"):
            raise SystemExit(f"docs/tutorials.map:{number}: neither a row, an answer nor words: {line}")
    return rows, words


class Sources:
    """What answers may name."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.pages = {language: read_page(self.root / "docs" / name) for language, name in PAGES.items()}
        self.texts = {language: (self.root / "docs" / name).read_text("utf-8")
                      for language, name in PAGES.items()}
        build = (self.root / "tests/docs/CMakeLists.txt").read_text("utf-8")
        self.languages_run = set(re.findall(r'/from_pytorch\.md blocks\s+"?(cpp[ a-z]*?)"? docs/', build))

    def block(self, target):
        lines = {block.language for section in self.pages["en"] for block in section.blocks
                 if target in (line.strip() for line in block.code.split("\n"))}
        if not lines:
            return "no line of a block of docs/from_pytorch.md"
        return None if lines & self.languages_run else "in no block that tests/docs runs"

    def text(self, target):
        parts = target.split(" | ")
        if len(parts) != 2:
            return "not two texts, English | Chinese"
        for language, part in zip(PAGES, parts):
            words = " ".join(part.split())
            if words not in " ".join(self.texts[language].split()):
                return f"docs/{PAGES[language]} does not say: {part}"
        return None

    def example(self, target):
        name, test = target.split(", ")
        suite, case = test.split(".")
        if not (self.root / f"examples/{name}.cpp").exists():
            return f"no examples/{name}.cpp"
        build = (self.root / "tests/examples/CMakeLists.txt").read_text("utf-8")
        for path in sorted((self.root / "tests/examples").glob("*_test.cpp")):
            source = path.read_text("utf-8")
            if re.search(rf"TEST(_F|_P)?\({suite}, {case}\)", source):
                if f'example("{name}")' not in source:
                    return f"{path.name} has {test}, which does not run {name}"
                return None if re.search(rf"\b{path.name}\b", build) else f"{path.name} is not built"
        return f"no test {test} in tests/examples"


def is_in(word, text):
    """As a word of its own, where it is Latin."""
    last = r"(?!\w)" if word[-1].isalnum() else ""
    latin = word.isascii()
    pattern = rf"(?<!\w){re.escape(word)}{last}" if latin else re.escape(word)
    return re.search(pattern, text, re.ASCII | re.IGNORECASE) is not None


def check_rows(rows, sources):
    missing = set(range(1, ROWS + 1)) - {number for _, number, answers in rows if answers}
    problems = [f"docs/tutorials.map: nothing answers row {number}" for number in sorted(missing)]
    for _, _, answers in rows:
        for line, kind, target in answers:
            problem = getattr(sources, kind)(target)
            if problem:
                problems.append(f"docs/tutorials.map:{line}: {problem}: {target}")
    return problems


def check_section(line, language, title, words, sources):
    sections = sources.pages[language]
    places = [i for i, section in enumerate(sections) if section.title == title]
    if not places:
        return [f"docs/tutorials.map:{line}: docs/{PAGES[language]} has no section {title}"]
    section = sections[places[0]]
    said = "\n".join([section.title, section.text()] + [block.code for block in section.blocks])
    return [f"docs/tutorials.map:{line}: section {title} of docs/{PAGES[language]} lacks {word}"
            for word in words if not is_in(word, said)]


def check_words(words, sources):
    problems = []
    for language, expected in WORDS.items():
        found = {word for _, of, _, there in words if of == language for word in there}
        problems += [f"docs/tutorials.map: no section for the word {word}"
                     for word in expected.split(", ") if word not in found]
    for line, language, title, there in words:
        problems += check_section(line, language, title, there, sources)
    for word in WORDS["en"].split(", "):  # names, which are searched for in every language
        if not is_in(word, sources.texts["zh"]):
            problems.append(f"docs/{PAGES['zh']}: nothing about {word}")
    return problems


def main(root):
    sources = Sources(root)
    rows, words = parse((sources.root / "docs/tutorials.map").read_text("utf-8"))
    problems = check_rows(rows, sources) + check_words(words, sources)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
