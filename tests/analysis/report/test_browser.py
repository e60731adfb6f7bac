"""In a browser a site does what it says, without a console error or a request to elsewhere."""

import time

import pytest

from analysis.__main__ import main
from tests.analysis.report.browser import CHROMIUM, Browser
from tests.analysis.report.example import example_runs
from tests.analysis.synthetic_runs import SyntheticRun, generate_run

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    root = tmp_path_factory.mktemp("site")
    runs = example_runs(root / "runs")
    assert main(["report", "--site", str(runs), "--out", str(root / "public")]) == 0
    return root / "public"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    found = Browser(tmp_path_factory.mktemp("profile"))
    yield found
    found.close()


@pytest.fixture(autouse=True)
def desktop(browser):
    browser.size(1200)
    browser.call("Emulation.setEmulatedMedia", media="", features=[])


SHOWN = "[...document.querySelectorAll('#runs tbody tr')].filter((r) => !r.hidden)"
NAMES = f"{SHOWN}.map((r) => r.cells[0].textContent)"


def filtered(browser, text):
    """The names of the runs that a condition leaves."""
    browser.run(
        "(() => { const field = document.querySelector('input[type=search]');"
        f"field.value = {text!r}; field.dispatchEvent(new Event('input')); }})()"
    )
    return browser.run(NAMES)


def test_every_page_opens_from_a_file_without_an_error_or_a_foreign_request(browser, site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) == 6
    for page in pages:
        browser.open(page)
        browser.wait_for("document.querySelectorAll('.controls').length > 0")
        assert browser.complaints() == []
        assert all(url.startswith(site.as_uri()) for url in browser.requests())
        assert browser.run("document.querySelectorAll('img[src=x]').length") == 0


def test_conditions_facets_and_words_filter_the_runs(browser, site):
    browser.open(site / "index.html")
    assert len(browser.run(NAMES)) == 4
    assert filtered(browser, "ranks>=2 gpu:A40") == ["two", "\\u202ertl \"quote' &amp;"]
    assert filtered(browser, "data.workers=1") == ["two"]
    assert filtered(browser, "images_per_s<300 loss<1") == ["one"]
    assert filtered(browser, "onerror") == ["<\u2215script><img src=x onerror=alert(1)>"]
    assert filtered(browser, "validation_loss!=0.3") == []
    assert browser.run("document.querySelector('output').textContent") == "0 of 4 runs"
    assert filtered(browser, "speed>1") == []
    assert browser.run("document.querySelector('output').textContent") == "no column or key speed"
    assert browser.run("document.querySelector('input').getAttribute('aria-invalid')") == "true"
    filtered(browser, "")
    browser.run(
        "(() => { const gpu = document.querySelectorAll('.controls select')[1];"
        "gpu.value = 'NVIDIA H100'; gpu.dispatchEvent(new Event('change')); })()"
    )
    assert len(browser.run(NAMES)) == 2


def test_a_column_sorts_by_number_and_says_so(browser, site):
    browser.open(site / "index.html")
    head = "[...document.querySelectorAll('#runs th')].find((h) => h.textContent === 'steps/s')"
    browser.run(f"{head}.querySelector('button').focus()")
    browser.press("Enter")
    assert browser.run(f"{head}.getAttribute('aria-sort')") == "ascending"
    first = browser.run(NAMES)
    browser.press("Enter")
    assert browser.run(f"{head}.getAttribute('aria-sort')") == "descending"
    assert browser.run(NAMES) == first[::-1]
    assert first[0] == "one"


def test_a_config_key_becomes_a_column(browser, site):
    browser.open(site / "index.html")
    browser.run(
        "(() => { const added = document.querySelectorAll('.controls select')[3];"
        "added.value = 'data.workers'; added.dispatchEvent(new Event('change')); })()"
    )
    last = f"{SHOWN}.map((r) => r.cells[r.cells.length - 1].textContent)"
    assert sorted(browser.run(last)) == ["0", "1", "2", "3"]


def test_two_configs_stand_side_by_side(browser, site):
    browser.open(site / "index.html")
    for side, run in enumerate(("one", "two")):
        browser.run(
            f"(() => {{ const list = document.querySelectorAll('#configs select')[{side}];"
            f"list.value = [...list].findIndex((o) => o.text.endsWith(': {run}'));"
            "list.dispatchEvent(new Event('change')); })()"
        )
    rows = browser.run(
        "[...document.querySelectorAll('#configs tbody tr')]"
        ".map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    assert ["data.workers", "0", "1"] in rows
    assert ["gpu", "NVIDIA H100", "NVIDIA A40"] in rows
    assert not any(name == "model.width" for name, *_ in rows)


RANGE = "[...document.querySelectorAll('#curves-plot output')].at(-1).textContent"


def button(browser, label):
    browser.run(f"document.querySelector('[aria-label=\"{label}\"]').click()")


def test_curves_zoom_by_buttons_and_by_the_mouse(browser, site):
    browser.open(site / "runs" / "one.html")
    browser.wait_for("!!document.querySelector('.u-over')")
    assert browser.run(RANGE) == "x from 10 to 1200"
    button(browser, "zoom in")
    browser.wait_for(f"{RANGE} === 'x from 307.5 to 902.5'")
    button(browser, "show all")
    browser.wait_for(f"{RANGE} === 'x from 10 to 1200'")
    browser.run("document.querySelector('.u-over').scrollIntoView({ block: 'center' })")
    box = browser.run("(({x, y, width, height}) => [x, y, width, height])"
                      "(document.querySelector('.u-over').getBoundingClientRect())")  # fmt: skip
    middle = box[1] + box[3] / 2
    browser.drag((box[0] + box[2] / 4, middle), (box[0] + box[2] / 2, middle))
    browser.wait_for(f"{RANGE} !== 'x from 10 to 1200'")
    low, high = (float(word) for word in browser.run(RANGE).split(" ")[2::2])
    assert 250 < low < 350
    assert 550 < high < 650


def test_a_name_in_a_legend_cannot_turn_the_text(browser, site):
    browser.open(site / "runs" / "index.html")
    browser.wait_for("!!document.querySelector('.u-over')")
    assert "\\u202ertl" in browser.run("document.querySelector('.u-legend').textContent")
    assert "\u202e" not in browser.run("document.body.textContent")


def test_smoothing_is_named_and_the_axis_is_chosen(browser, site):
    browser.open(site / "runs" / "one.html")
    browser.wait_for("!!document.querySelector('.u-over')")
    browser.run(
        "(() => { const range = document.querySelector('#curves-plot input[type=range]');"
        "range.value = 0.9; range.dispatchEvent(new Event('input'));"
        "const axis = document.querySelectorAll('#curves-plot select')[1];"
        "axis.value = 'images'; axis.dispatchEvent(new Event('change')); })()"
    )
    browser.wait_for(f"{RANGE} === 'x from 640 to 76800'")
    labels = browser.run("document.querySelector('.u-legend').textContent")
    assert "one, as recorded" in labels
    assert "one, smoothed by 0.9" in labels
    described = browser.run("document.querySelector('.plot').getAttribute('aria-label')")
    assert described.startswith("loss over images seen, 1 curve; smoothed by 0.9")
    assert browser.complaints() == []


def test_beyond_ten_colours_curves_are_broken(browser, tmp_path):
    for number in range(12):
        generate_run(tmp_path / "runs" / f"run{number}", SyntheticRun(seed=number, intervals=20))
    assert (
        main(["report", "--site", str(tmp_path / "runs"), "--out", str(tmp_path / "public")]) == 0
    )
    browser.open(tmp_path / "public" / "runs" / "index.html")
    browser.wait_for("!!document.querySelector('.u-over')")
    browser.run(
        "(() => { const which = document.querySelectorAll('#curves-plot select')[2];"
        "which.value = 'runs'; which.dispatchEvent(new Event('change')); })()"
    )
    borders = browser.run(
        "[...document.querySelectorAll('.u-marker')].map((m) => m.style.borderStyle)"
    )
    assert borders[-12:] == ["solid"] * 10 + ["dashed"] * 2


def test_a_logarithmic_axis_ends_beside_the_curve(browser, site):
    browser.open(site / "runs" / "one.html")
    rounded = "[oneDigit(0.47, Math.floor), oneDigit(1.7, Math.ceil), oneDigit(0.3, Math.floor)]"
    assert browser.run(rounded) == [0.4, 2, 0.3]


def test_flicker_shows_two_runs_of_one_noise_in_turn(browser, site):
    browser.open(site / "runs" / "index.html")
    image = "document.querySelector('.viewer img')"
    first = browser.run(f"{image}.src")
    toggle = "document.querySelector('button[aria-pressed]')"
    browser.run(f"{toggle}.focus()")
    browser.press(" ")
    browser.wait_for(f"{image}.src !== {first!r}")
    assert "B: " in browser.run("document.querySelector('figcaption[role=status]').textContent")
    browser.wait_for(f"{image}.src === {first!r}")
    browser.press(" ")
    assert browser.run(f"{toggle}.getAttribute('aria-pressed')") == "false"
    before = browser.run(f"{image}.src")
    time.sleep(0.8)
    assert browser.run(f"{image}.src") == before
    assert browser.run(f"{image}.naturalWidth") == 32


def test_the_slider_goes_through_the_steps(browser, site):
    browser.open(site / "runs" / "two.html")
    alt = "document.querySelector('.viewer img').alt"
    assert browser.run(alt) == "two, step 400"
    browser.run(
        "(() => { const step = document.querySelector('[aria-label=\"step of A\"]');"
        "step.value = 1; step.dispatchEvent(new Event('input')); })()"
    )
    assert browser.run(alt) == "two, step 800"


def test_every_control_has_a_name_and_every_header_a_scope(browser, site):
    for page in ("index.html", "runs/index.html", "runs/one.html"):
        browser.open(site / page)
        browser.wait_for("document.querySelectorAll('.controls').length > 0")
        nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
        roles = ("button", "combobox", "checkbox", "slider", "searchbox", "link", "image")
        controls = [one for one in nodes if one.get("role", {}).get("value") in roles]
        assert len(controls) > 10
        assert [one for one in controls if not one.get("name", {}).get("value")] == []
        assert browser.run("document.querySelectorAll('th:not([scope])').length") == (
            browser.run("document.querySelectorAll('.u-legend th').length")
        )


@pytest.mark.parametrize("page", ["index.html", "runs/index.html", "runs/one.html"])
def test_a_phone_scrolls_tables_but_not_the_page(browser, site, page):
    browser.size(400)
    browser.open(site / page)
    browser.wait_for("document.querySelectorAll('.controls').length > 0")
    assert browser.run("document.documentElement.scrollWidth") <= 400
    widths = browser.run("[...document.querySelectorAll('figure > svg')].map((s) => s.clientWidth)")
    assert all(width == 0 or width >= 620 for width in widths)


def test_print_shows_the_plot_that_needs_no_script(browser, site):
    browser.open(site / "runs" / "one.html")
    visible = "getComputedStyle(document.querySelector('{}')).display !== 'none'"
    assert not browser.run(visible.format("svg.static"))
    browser.call("Emulation.setEmulatedMedia", media="print")
    assert browser.run(visible.format("svg.static"))
    assert not browser.run(visible.format(".plot"))
    assert browser.run("getComputedStyle(document.querySelector('.wide')).overflowX") == "visible"
    assert len(browser.call("Page.printToPDF")["data"]) > 10_000


def test_dark_and_light_are_told_apart(browser, site):
    browser.open(site / "index.html")
    light = browser.run("getComputedStyle(document.body).backgroundColor")
    features = [{"name": "prefers-color-scheme", "value": "dark"}]
    browser.call("Emulation.setEmulatedMedia", features=features)
    assert browser.run("getComputedStyle(document.body).backgroundColor") != light
