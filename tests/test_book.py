"""The built book: complete by itself, and right in a browser, in light and in dark.

`make test` builds it first. The browser is Debian's Chromium; elsewhere those tests skip.
"""

import functools
import http.server
import json
import re
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

# A node that only measures has the packages of the book neither for building it nor for these tests.
bs4 = pytest.importorskip("bs4")
pytest.importorskip("yaml")

from artifact import build  # noqa: E402
from artifact.drawing.pages import rebuilt  # noqa: E402
from artifact.paths import BUILD, ROOT  # noqa: E402

HTML = BUILD / "html"
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
#: What a page loads by itself, as opposed to a link that a reader may follow.
LOADED = {
    "script": "src",
    "img": "src",
    "source": "src",
    "iframe": "src",
    "embed": "src",
    "object": "data",
    "video": "src",
    "audio": "src",
    "link": "href",
    "use": "href",
    "image": "href",
}
#: WCAG AA for text; the large sizes that need less are not told apart.
LEAST_CONTRAST = 4.5
DESK, PHONE = 1400, 390  # px
#: No start page, and nothing that Chromium asks the network for by itself.
FLAGS = (
    *("headless=new", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "window-size=1400,1000"),
    *("disable-background-networking", "disable-component-update", "disable-sync"),
)

PAGES = sorted(HTML.glob("*.html"))
pytestmark = pytest.mark.skipif(not PAGES, reason="the book is not built: make book")
each = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


@functools.cache  # a page of many figures takes seconds
def parsed(page: Path) -> bs4.BeautifulSoup:
    return bs4.BeautifulSoup(page.read_text(), "html.parser")


# --- without a browser ---------------------------------------------------------------------------


@each
def test_a_page_loads_nothing_from_elsewhere_and_its_pictures_have_words(page):
    soup = parsed(page)
    assert not [
        url
        for url in [element.get(attribute, "") for tag, attribute in LOADED.items() for element in soup.find_all(tag)]
        if re.match(r"(https?:)?//", url)
    ]
    assert {i for i, number in Counter(element["id"] for element in soup.find_all(id=True)).items() if number > 1} <= {
        "pst-search-dialog"
    }
    assert all(image.get("alt") is not None for image in soup.find_all("img"))
    assert all(image["alt"].strip() for image in soup.select(".bd-article figure img"))
    # A figure that a cell leaves open is drawn once more, as it is named, for one mode of the page.
    assert not [image["alt"] for image in soup.select(".bd-article img") if image["alt"].startswith("_images/")]


@each
def test_local_links_lead_somewhere(page):
    soup = parsed(page)
    links = [a["href"] for a in soup.find_all("a", href=True)]
    links += [e[LOADED[e.name]] for e in soup.find_all(list(LOADED)) if e.get(LOADED[e.name])]
    for link in links:
        url = urlsplit(link)
        if url.scheme or url.netloc:
            continue
        target = (page.parent / unquote(url.path)).resolve() if url.path else page
        assert target.exists(), f"{page.name} links to {link}, which does not exist"
        if url.fragment and target.suffix == ".html":
            assert unquote(url.fragment) in anchors(target), f"{page.name} links to {link}: no such place there"


@functools.cache
def anchors(page: Path) -> set[str]:
    soup = parsed(page)
    return {e["id"] for e in soup.find_all(id=True)} | {e["name"] for e in soup.find_all("a", {"name": True})}


@each
def test_figures_and_tables_are_numbered_in_order_and_have_captions(page):
    for what, places in (("Figure", "article figure figcaption"), ("Table", "article table > caption")):
        captions = [c.get_text(" ").split() for c in parsed(page).select(places)]
        assert all(len(said) > 2 for said in captions), captions
        numbers = [int(said[1].rstrip(".")) for said in captions if said[0] == what]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True, numbers
    assert all(figure.figcaption for figure in parsed(page).select("article .cell_output figure:has(img)"))
    # The front page's tables are told by the heads of their sections.
    assert all(
        table.caption for table in (parsed(page).select("article .cell_output table") if page.stem != "index" else [])
    )


def test_stylesheets_load_nothing_from_elsewhere():
    for sheet in HTML.rglob("*.css"):
        for url in re.findall(r"(?:url\(|@import)\s*['\"]?([^'\")\s;]+)", sheet.read_text()):
            assert not re.match(r"(https?:)?//", url), f"{sheet.name} loads {url}"


def test_every_page_is_in_the_table_of_contents():
    sources = [path.stem for path in (*(ROOT / "book").glob("*.md"), *(ROOT / "notebooks").glob("*.ipynb"))]
    sources += rebuilt.pages().values()
    assert sorted(re.findall(r"'(?:file|root)': '([^']+)'", str(build.contents()))) == sorted(sources)
    assert {*sources} <= {page.stem for page in PAGES}


def test_figures_are_there_with_their_data():
    for svg in (path for path in (BUILD / "figures").rglob("*.svg") if not path.stem.endswith("-narrow")):
        for suffix in (".svg", ".csv"):
            assert (HTML / "figures" / svg.relative_to(BUILD / "figures")).with_suffix(suffix).is_file()


# --- in a browser --------------------------------------------------------------------------------


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(HTML))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


@pytest.fixture(scope="module")
def browser():
    if not CHROMIUM or not DRIVER:
        missing = "chromium" if not CHROMIUM else "chromedriver"
        pytest.skip(f"{missing} is not on the PATH (Debian: apt-get install chromium chromium-driver)")
    from selenium import webdriver

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        for flag in (*FLAGS, f"user-data-dir={profile}"):
            options.add_argument(f"--{flag}")
        driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
        driver.set_script_timeout(30)
        driver.get("data:,")  # leaves the start page, and what it says on the console
        yield driver
        driver.quit()


def visit(browser, url: str, theme: str) -> None:
    """Open a page as a reader whose system prefers `theme`, and wait until its math is typeset."""
    browser.get_log("browser"), browser.get_log("performance")
    prefer(browser, theme)
    window(browser, DESK)
    browser.get(url)
    browser.execute_async_script(
        "const done = arguments[arguments.length - 1];"
        "Promise.all([window.MathJax?.startup?.promise, document.fonts.ready]).then(() =>"
        "  requestAnimationFrame(() => setTimeout(done, 100)));"
    )


def prefer(browser, theme: str) -> None:
    """Let the reader's system prefer `theme`; an open page follows."""
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": theme}]},
    )
    browser.execute_async_script(
        "const done = arguments[0], finish = () => {"
        "  document.getAnimations().filter(a => a instanceof CSSTransition).forEach(a => a.finish()); done(); };"
        "requestAnimationFrame(() => requestAnimationFrame(finish));"
    )


def window(browser, width: int, height: int = 1000) -> None:
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
    )


def complaints(browser, allowed: str) -> list[str]:
    """Console errors, requests to another host than `allowed`, and requests that failed."""
    found = [e["message"] for e in browser.get_log("browser") if e["level"] == "SEVERE"]
    ours = {}  # the browser's own start page makes requests as well
    for entry in browser.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        event = message["params"]
        if message["method"] == "Network.requestWillBeSent" and event["documentURL"].startswith(allowed):
            url = ours[event["requestId"]] = event["request"]["url"]
            found += [] if url.startswith((allowed, "data:", "blob:")) else [f"loads {url}"]
        elif url := ours.get(event.get("requestId")):
            status = event.get("response", {}).get("status", 0)
            failed = message["method"] == "Network.loadingFailed" and not event.get("canceled")
            found += [f"{event.get('errorText', status)} for {url}"] if failed or status >= 400 else []
    assert ours, "the browser reports no request at all"
    return found


@each
def test_page_in_browser(browser, site, page):
    """Loaded once, since a page of many figures takes seconds: in the dark, then in the light, then on a phone."""
    visit(browser, site + page.name, "dark")
    for theme in ("dark", "light"):
        prefer(browser, theme)
        assert browser.execute_script("return document.documentElement.dataset.theme") == theme
        assert browser.execute_script(LOW_CONTRAST, LEAST_CONTRAST) == [], theme
    assert browser.execute_script(BROKEN_PICTURES) == []
    formulas, typeset, wrong = browser.execute_script(MATH)
    assert typeset >= formulas, f"{formulas} formulas, {typeset} typeset"
    assert wrong == []
    window(browser, PHONE)
    left, right = browser.execute_script(
        "const box = document.querySelector('.bd-main').getBoundingClientRect();"
        "return [box.left, Math.max(box.right, document.documentElement.scrollWidth)];"
    )
    assert left >= 0 and right <= PHONE, "it scrolls sideways: something wide needs a box that does"
    assert browser.execute_script(BROKEN_PICTURES) == [], "on a phone"
    assert complaints(browser, site) == []


def test_book_opens_from_the_file_system(browser):
    visit(browser, (HTML / "index.html").as_uri(), "light")
    assert browser.execute_script("return document.documentElement.dataset.theme") == "light"
    assert complaints(browser, HTML.as_uri()) == []


def test_the_ledger_is_filtered_and_sorted_without_a_server(browser):
    page = HTML / "ledger.html"
    if not page.is_file() or "table" not in page.read_text():
        pytest.skip("this book has no ledger")
    visit(browser, page.as_uri(), "light")
    browser.execute_async_script(WAIT_FOR_FILTERS)

    def shown(name: str, value: str) -> list[str]:
        """The column's cells once the field `name` has this value."""
        return browser.execute_script(LEDGER, name, value)

    every = shown("search", "")
    assert len(every) == len(parsed(page).select("table.ledger tbody tr[id]")) > 300
    heads = browser.execute_script(HEADS)
    assert 20 < len(heads) == len(parsed(page).select("table.ledger tr.group"))
    shown("search", "cuBLAS")
    assert 0 < len(browser.execute_script(HEADS)) < len(heads), "a section without rows has no head"
    shown("search", "")
    assert browser.execute_script(HEADS) == heads
    assert 0 < len(shown("search", "cuBLAS")) < len(every)
    shown("search", "")
    for verdict in ("reproduced", "not reproduced"):
        rows = shown("verdict", verdict)
        assert 0 < len(rows) < len(every) and {row[1] for row in rows} == {verdict}
    shown("verdict", "")
    assert all("A100" in row[2].split(", ") for row in shown("GPU", "A100"))
    assert len(shown("GPU", "")) == len(every)
    first = browser.execute_async_script(
        "const done = arguments[0], table = document.querySelector('table.ledger');"
        "[...table.tHead.rows[0].cells].find(head => 'gpu' in head.dataset).click();"
        "setTimeout(() => done(table.querySelector('tbody td[data-verdict]').dataset.verdict), 500);"
    )
    assert first == "reproduced" and not browser.execute_script(HEADS)
    shown("search", "cuBLAS")
    few = shown("GPU", "A100")
    assert complaints(browser, HTML.as_uri()) == []
    # The address holds what was asked for.
    address = browser.current_url
    assert "search=cuBLAS" in address and "GPU=A100" in address
    visit(browser, address, "light")
    browser.execute_async_script(WAIT_FOR_FILTERS)
    assert sorted(shown("search", "cuBLAS")) == sorted(few) and 0 < len(few) < len(every)


WAIT_FOR_FILTERS = (
    "const done = arguments[0], until = Date.now() + 10000, look = () =>"
    " document.querySelector('.ledger-filters') || Date.now() > until ? done() : setTimeout(look, 50);"
    "look();"
)

HEADS = "return [...document.querySelectorAll('table.ledger tr.group')].map(head => head.textContent);"

LEDGER = """
const [name, value] = arguments;
const label = [...document.querySelectorAll('.ledger-filters label')].find(l => l.textContent.startsWith(name));
const field = label.querySelector('input, select');
field.value = value;
field.dispatchEvent(new Event(field.tagName === 'INPUT' ? 'input' : 'change'));
return [...document.querySelectorAll('table.ledger tbody tr[id]')].map(r =>
  [r.id, r.querySelector('td[data-verdict]').dataset.verdict, r.cells[2].textContent]);
"""


def test_search_finds(browser, site):
    visit(browser, site + "search.html?q=sparse", "light")
    browser.execute_async_script(
        "const done = arguments[0], until = Date.now() + 10000, look = () =>"
        " document.querySelector('ul.search li') || Date.now() > until ? done() : setTimeout(look, 50);"
        "look();"
    )
    assert browser.execute_script("return document.querySelectorAll('ul.search li').length")
    assert complaints(browser, site) == []


BROKEN_PICTURES = """
const broken = [...document.images].filter(i => i.loading !== 'lazy' && !(i.complete && i.naturalWidth))
  .map(i => i.src);
// Of a figure that is drawn for narrow pages as well, one is shown.
const small = i => { const box = i.getBoundingClientRect(); return box.width < 10 || box.height < 10; };
const all = [...document.querySelectorAll('.bd-article img.themed')];
const pictures = all.filter(i => !i.closest('details:not([open])'));
const flat = pictures.filter(i => getComputedStyle(i).display !== 'none' && small(i)).map(i => i.alt);
const none = pictures.length && pictures.every(i => getComputedStyle(i).display === 'none') ? ['all are hidden'] : [];
return broken.concat(flat, none);
"""

MATH = """
return [document.querySelectorAll('.bd-article .math').length,
        document.querySelectorAll('.bd-article mjx-container').length,
        [...document.querySelectorAll('mjx-merror')].map(e => e.textContent)];
"""

# The contrast of every visible piece of text with the ground that it stands on, ours and the theme's alike.
LOW_CONTRAST = """
const [least] = arguments;
const canvas = Object.assign(document.createElement('canvas'), {width: 1, height: 1});
const pen = canvas.getContext('2d', {willReadFrequently: true});
const once = make => {  // pages of thousands of labels have a dozen colours
  const made = new Map();
  return given => made.has(given) ? made.get(given) : made.set(given, make(given)).get(given);
};
const rgba = once(colour => {
  pen.clearRect(0, 0, 1, 1); pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1);
  const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
  return [r, g, b, a / 255];
});
const over = (top, under) => [0, 1, 2].map(i => top[i] * top[3] + under[i] * (1 - top[3])).concat(1);
const ground = once(element => {
  if (!element) return [255, 255, 255, 1];
  const own = rgba(getComputedStyle(element).backgroundColor);
  return own[3] === 1 ? own : over(own, ground(element.parentElement));
});
const luminance = colour => [0.2126, 0.7152, 0.0722].reduce((sum, weight, i) => {
  const c = colour[i] / 255;
  return sum + weight * (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
}, 0);
const low = new Set();
for (const element of document.querySelectorAll('.bd-article *')) {
  if (element.closest('.headerlink, mjx-assistive-mml, style, script, button')) continue;
  if (![...element.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) continue;
  if (!element.checkVisibility({checkOpacity: true, checkVisibilityCSS: true})) continue;
  const style = getComputedStyle(element), back = ground(element);
  const ink = element.closest('svg') ? style.fill : style.color;
  if (ink === 'none') continue;
  const a = luminance(over(rgba(ink), back)), b = luminance(back);
  const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (contrast < least) low.add(`${contrast.toFixed(2)} ${element.tagName}.${element.getAttribute('class')}: ` +
                                element.textContent.trim().slice(0, 40));
}
return [...low];
"""
