"""Pages of reports in a real browser: Debian's Chromium, driven by playwright."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tensorcomp.pipeline.summary import CheckpointSummary
from tensorcomp.pipeline.tensor_summary import TensorSummary
from tensorcomp.reports import save_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's package chromium"),
    pytest.mark.filterwarnings("ignore"),
]

HOSTILE = [
    "</script><script>document.title = 'attacked'</script>",
    "<img src=x onerror=\"document.title = 'attacked'\">",
    "right \u202eto left, \"quoted\", 'twice'",
    "x" * 50_000,
]
# The contrast of two colours as WCAG 2 defines it, of each element and what is behind it.
CONTRASTS = """() => {
  const parts = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (c) => c.slice(0, 3).map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, n) => sum + v * [0.2126, 0.7152, 0.0722][n], 0);
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const colour = parts(getComputedStyle(node).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  return [...document.querySelectorAll("body *")]
    .filter((node) => node.checkVisibility())
    .filter((node) => [...node.childNodes].some((n) => n.nodeType === 3 && n.data.trim()))
    .map((node) => {
      const style = getComputedStyle(node);
      const own = parts(node instanceof SVGElement ? style.fill : style.color);
      const [a, b] = [light(own), light(behind(node))].sort((x, y) => y - x);
      return [(a + 0.05) / (b + 0.05), node.tagName, node.textContent.slice(0, 30)];
    })
    .sort((x, y) => x[0] - y[0]);
}"""


def row(name: str, n: int) -> TensorSummary:
    return TensorSummary(
        *(name, "BF16", (64, 64), ("mlp", "attention.q", "norm")[n % 3], 8192, 900 + 7 * n % 5000),
        tree="uniform(step=0.1)",
        rel_l2=0.01 + n % 997 / 10_000,
    )


def many(count: int) -> list[TensorSummary]:
    return [row(f"model.layers.{n // 7}.w{n % 7}", n) for n in range(count)]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as play:
        opened = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def show(browser: Browser, tmp_path: Path):
    """Return a function that opens a report; at the end nothing must have gone wrong."""
    wrong: list[str] = []
    contexts = []

    def opened(
        rows: list[TensorSummary], command: str = "tensorcomp x", **settings: object
    ) -> Page:
        sizes = 8192 * len(rows) + 100, sum(one.stored for one in rows) + 100
        result = CheckpointSummary(*sizes, tuple(rows), compressed=True)
        path = tmp_path / "report.html"
        save_report(result, path, title="model", command=command, force=True)
        contexts.append(browser.new_context(**{"offline": True, **settings}))
        page = contexts[-1].new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: wrong.append(message.text))
        page.on("dialog", lambda dialog: wrong.append(dialog.message))
        page.on("request", lambda request: wrong.append(request.url))
        wrong.clear()
        page.goto(path.as_uri())
        assert wrong == [path.as_uri()]  # the page itself, and nothing after
        wrong.clear()
        return page

    yield opened
    for context in contexts:
        context.close()
    assert wrong == []


def names(page: Page, most: int = 20) -> list[str]:
    return page.locator("#table tbody th").evaluate_all(
        "(cells, most) => cells.slice(0, most).map((cell) => cell.textContent)", most
    )


def column(page: Page, title: str, most: int = 10_000) -> list[str]:
    return page.evaluate(
        """([title, most]) => {
          const heads = [...document.querySelectorAll("#table thead th")];
          const at = heads.findIndex((cell) => cell.textContent === title);
          const rows = [...document.querySelector("#table tbody").rows].slice(0, most);
          return rows.map((row) => row.cells[at].textContent);
        }""",
        [title, most],
    )


def test_sorting_by_click_and_by_keyboard(show):
    page = show(many(40))
    first = [f"model.layers.{n // 7}.w{n % 7}" for n in range(40)]
    assert names(page, 40) == first
    assert page.locator("th[aria-sort=none]").count() == page.locator("#table thead th").count()
    page.get_by_role("button", name="SNR dB", exact=True).click()
    values = [float(text) for text in column(page, "SNR dB")]
    assert values == sorted(values)
    assert len(set(values)) > 20
    head = page.locator("th", has_text="SNR dB").last
    assert head.get_attribute("aria-sort") == "ascending"
    page.get_by_role("button", name="SNR dB", exact=True).press("Enter")
    assert [float(text) for text in column(page, "SNR dB")] == values[::-1]
    assert head.get_attribute("aria-sort") == "descending"
    page.get_by_role("button", name="Tensor", exact=True).press("Space")
    assert names(page, 40) == first  # layers.2 before layers.10
    assert page.locator("[aria-sort=ascending]").count() == 1
    assert page.locator("[aria-sort=descending]").count() == 0


def test_filtering(show):
    page = show(many(300))
    count = page.locator("#count")
    assert count.text_content() == "300 of 300 tensors"
    page.get_by_label("Filter").fill("LAYERS.4. w3")
    assert names(page) == ["model.layers.4.w3"]
    assert count.text_content() == "1 of 300 tensors"
    page.get_by_label("Filter").fill("attention.q")
    assert count.text_content() == "100 of 300 tensors"
    assert set(column(page, "Role")) == {"attention.q"}
    page.get_by_label("Filter").fill("nothing like it")
    assert count.text_content() == "0 of 300 tensors"
    page.get_by_label("Filter").fill("")
    assert count.text_content() == "300 of 300 tensors"


def test_ten_thousand_rows_stay_smooth(show):
    page = show(many(10_000))
    assert page.locator("#table tbody tr").count() < 1000
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})  # whatever else is running

    def seconds(act: str) -> float:
        def spent() -> float:
            metrics = session.send("Performance.getMetrics")["metrics"]
            return next(one["value"] for one in metrics if one["name"] == "TaskDuration")

        before = spent()
        page.evaluate(f"() => {{ {act}; document.body.offsetHeight; }}")
        return spent() - before

    sort = "document.querySelectorAll('#table thead button')[4].click()"
    search = "const f = document.getElementById('filter'); f.value = 'w3 mlp'; "
    search += "f.dispatchEvent(new Event('input'))"
    for act in (sort, search):
        times = [seconds(act) for _ in range(5)]
        assert 0.001 < min(times) < 0.2, times
    page.get_by_label("Filter").fill("")
    page.locator("#scroll").evaluate("(node) => node.scrollTo(0, node.scrollHeight)")
    page.locator("#table tbody tr").nth(150).wait_for(state="attached")
    page.locator("#scroll").evaluate("(node) => node.scrollTo(0, node.scrollHeight)")
    page.get_by_role("button", name="Show all rows").press("Enter")
    assert page.locator("#table tbody tr").count() == 10_000
    assert page.get_by_role("button", name="Show all rows").count() == 0


def test_hostile_names_are_inert(show):
    rows = [row(name, n) for n, name in enumerate(HOSTILE)]
    page = show(rows, command=HOSTILE[0])
    assert page.title() == "model – tensorcomp"
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 2
    assert names(page)[:2] == HOSTILE[:2]
    assert names(page)[2] == "right \\u202eto left, \"quoted\", 'twice'"
    assert page.locator(".command code").text_content() == HOSTILE[0]
    page.wait_for_timeout(100)
    assert page.title() == "model – tensorcomp"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_of_all_texts(show, scheme):
    page = show(many(40), color_scheme=scheme)
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 27)"}[scheme]
    found = page.evaluate(CONTRASTS)
    assert len(found) > 300
    assert found[0][0] >= 4.5, found[:3]  # WCAG AA


def test_keyboard_reaches_all_and_focus_is_seen(show):
    page = show(many(10))
    reached = []
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate(
                """() => {
                  const node = document.activeElement;
                  const style = getComputedStyle(node);
                  return [node.textContent.slice(0, 40), node.id, style.outlineStyle];
                }"""
            )
        )
        if reached[-1][0] == "Copy":
            break
    assert all(style == "solid" for _, _, style in reached), reached
    ids = [name for _, name, _ in reached]
    texts = [text for text, _, _ in reached]
    assert ids.index("filter") < ids.index("scroll") < texts.index("Shape") < texts.index("SNR dB")
    assert texts[-1] == "Copy"


def test_names_and_roles_for_screen_readers(show):
    page = show(many(30))
    for role in ("banner", "main", "contentinfo", "heading"):
        assert page.get_by_role(role).count() >= 1, role
    assert page.get_by_role("heading", level=1).count() == 1
    for control in page.locator("button:visible, input:visible").all():
        assert control.text_content() or control.evaluate("(node) => node.labels.length"), control
    for title in ("Bytes by role", "Bytes by layer", "All tensors"):
        assert page.get_by_role("region", name=title, exact=True).count() >= 1, title
    assert page.get_by_role("img", name="Rate and distortion").count() == 1
    assert page.get_by_role("columnheader", name="SNR dB").count() >= 1
    assert page.get_by_role("rowheader", name="model.layers.0.w0", exact=True).count() >= 1


def test_pointing_at_a_point_names_its_tensor(show):
    page = show(many(3))
    plot = page.locator("svg.plot")
    plot.scroll_into_view_if_needed()
    place = page.evaluate(
        """() => {
          const svg = document.querySelector("svg.plot");
          const [x, y] = svg.querySelector(".points").getAttribute("d").match(/[\\d.]+/g);
          const at = new DOMPoint(x, y).matrixTransform(svg.getScreenCTM());
          return [at.x, at.y];
        }"""
    )
    page.mouse.move(*place)
    said = page.locator("figure output").text_content()
    row = plot.locator("[data-rows]").first.get_attribute("data-rows")
    assert said.startswith(f"model.layers.0.w{row} · Role ")
    assert page.locator(".ring").get_attribute("visibility") == "visible"


def test_copying_the_command(show):
    page = show(many(3), command="tensorcomp compress 'a b' --report r.html")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy").click()
    page.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == (
        "tensorcomp compress 'a b' --report r.html"
    )


def test_a_narrow_screen(show):
    page = show([row(name, n) for n, name in enumerate(HOSTILE)] + many(40), viewport=PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    wide = page.evaluate(
        """() => [...document.querySelectorAll("h1, h2, p, dl, input, code")]
          .filter((node) => node.checkVisibility() && node.getBoundingClientRect().right > 361)
          .length"""
    )
    assert wide == 0


PHONE = {"width": 360, "height": 640}


def test_without_javascript_the_overview_stands(show):
    page = show(many(40), java_script_enabled=False)
    assert page.locator("noscript").is_visible()
    assert page.locator("#filter").is_hidden()
    assert page.locator("button").first.is_hidden()
    assert page.get_by_role("img", name="Rate and distortion").is_visible()
    assert page.get_by_role("rowheader", name="attention.q").is_visible()


def test_without_tensors_there_is_no_table(show):
    page = show([])
    assert page.get_by_text("There are no tensors to show.").is_visible()
    assert page.locator("#filter").is_hidden()
    assert page.locator("#table").is_hidden()


def test_print_has_all_rows(show):
    page = show(many(1500), color_scheme="dark")
    page.get_by_label("Filter").fill("mlp")
    pdf = page.pdf(format="A4")
    assert pdf.startswith(b"%PDF")
    assert page.locator("#table tbody tr").count() == 500
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator(".tools").is_hidden()
    heading, cell = page.evaluate(
        "['thead', 'tbody'].map((n) => getComputedStyle(table.querySelector(n + ' th')).padding)"
    )
    assert heading == cell
    # Chromium repeats headings on each page only where they hold no boxes.
    assert page.evaluate("getComputedStyle(table.querySelector('button')).display") == "contents"
    assert page.evaluate(
        "[...document.querySelectorAll('.wide')].every((n) => n.scrollWidth <= n.clientWidth + 1)"
    )
