"""In a browser a report does what it says, without a console error or a request to elsewhere."""

import time

import pytest

from analysis.__main__ import main
from tests.analysis.report.browser import CHROMIUM, Browser

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")


@pytest.fixture(scope="module")
def single(runs, page):
    """The page of one run."""
    out = page.with_name("two.html")
    assert main(["report", str(runs / "two"), "--out", str(out)]) == 0
    return out


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
STATUS = "document.querySelector('#runs output').textContent"
DRAWN = "document.querySelector('#curves-plot output').textContent"
RANGE = "[...document.querySelectorAll('#curves-plot output')].at(-1).textContent"


def opened(browser, page):
    browser.open(page)
    browser.wait_for("document.querySelectorAll('.controls').length > 0")


def changed(browser, selector, value, event="change"):
    """Set the value of a control as a user does."""
    browser.run(
        f"(() => {{ const field = document.querySelector({selector!r}); field.value = {value!r};"
        f"field.dispatchEvent(new Event({event!r})); }})()"
    )


def filtered(browser, words):
    """The names of the runs that a condition leaves."""
    changed(browser, "input[type=search]", words, "input")
    return browser.run(NAMES)


def selects(browser, section, label):
    """Mark the list with a label, so that it is found."""
    browser.run(
        f"[...document.querySelectorAll('#{section} .control')]"
        f".find((c) => c.textContent.startsWith('{label} ')).lastChild.id = 'sought'"
    )
    return "#sought"


def test_every_page_opens_from_a_file_without_an_error_or_a_foreign_request(browser, page, single):
    for file in (page, single):
        opened(browser, file)
        assert browser.complaints() == []
        assert all(url.startswith((file.as_uri(), "data:")) for url in browser.requests())
        assert browser.run("document.querySelectorAll('img[src=x]').length") == 0


def test_conditions_facets_and_words_filter_the_runs_and_their_curves(browser, page):
    opened(browser, page)
    assert len(browser.run(NAMES)) == 4
    assert browser.run(DRAWN) == "4 curves"
    assert filtered(browser, "ranks>=2 gpu:A40") == ["two", "\\u202ertl \"quote' &amp;"]
    assert browser.run(DRAWN) == "2 curves"
    assert filtered(browser, "data.workers=1") == ["two"]
    assert filtered(browser, "images_per_s<300 loss<1") == ["one"]
    assert filtered(browser, "onerror") == ["<\u2215script><img src=x onerror=alert(1)>"]
    assert filtered(browser, "validation_loss!=0.3") == []
    assert browser.run(STATUS) == "0 of 4 runs"
    assert filtered(browser, "speed>1") == []
    assert browser.run(STATUS) == "no column or key speed"
    assert (
        browser.run("document.querySelector('#runs input').getAttribute('aria-invalid')") == "true"
    )
    filtered(browser, "")
    changed(browser, selects(browser, "runs", "gpu"), "NVIDIA H100")
    assert len(browser.run(NAMES)) == 2
    assert browser.complaints() == []


def test_a_column_sorts_by_number_and_says_so(browser, page):
    opened(browser, page)
    head = "document.querySelector('#runs [data-name=steps_per_s]')"
    browser.run(f"{head}.querySelector('button').focus()")
    browser.press("Enter")
    assert browser.run(f"{head}.getAttribute('aria-sort')") == "ascending"
    first = browser.run(NAMES)
    browser.press("Enter")
    assert browser.run(f"{head}.getAttribute('aria-sort')") == "descending"
    assert browser.run(NAMES) == first[::-1]
    assert first[0] == "one"


def test_two_configs_stand_side_by_side(browser, page):
    opened(browser, page)
    names = browser.run("data.columns.run")
    for side, run in (("A", "one"), ("B", "two")):
        changed(browser, selects(browser, "configs", side), names.index(run))
        browser.run("document.querySelector('#sought').id = ''")
    rows = browser.run(
        "[...document.querySelectorAll('#configs tbody tr')]"
        ".map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    assert ["data.workers", "0", "1"] in rows
    assert ["gpu", "NVIDIA H100", "NVIDIA A40"] in rows
    assert not any(name == "model.width" for name, *_ in rows)


def test_curves_zoom_by_buttons_and_by_the_mouse(browser, single):
    opened(browser, single)
    browser.wait_for("!!document.querySelector('.u-over')")
    assert browser.run(RANGE) == "x from 10 to 1200"
    for label, shown in (("zoom in", "x from 307.5 to 902.5"), ("show all", "x from 10 to 1200")):
        browser.run(f"document.querySelector('[aria-label=\"{label}\"]').click()")
        browser.wait_for(f"{RANGE} === '{shown}'")
    browser.run("document.querySelector('.u-over').scrollIntoView({ block: 'center' })")
    box = browser.run("(({x, y, width, height}) => [x, y, width, height])"
                      "(document.querySelector('.u-over').getBoundingClientRect())")  # fmt: skip
    middle = box[1] + box[3] / 2
    browser.drag((box[0] + box[2] / 4, middle), (box[0] + box[2] / 2, middle))
    browser.wait_for(f"{RANGE} !== 'x from 10 to 1200'")
    low, high = (float(word) for word in browser.run(RANGE).split(" ")[2::2])
    assert 250 < low < 350
    assert 550 < high < 650


def test_a_name_in_a_legend_cannot_turn_the_text(browser, page):
    opened(browser, page)
    browser.wait_for("!!document.querySelector('.u-over')")
    assert "\\u202ertl" in browser.run("document.querySelector('.u-legend').textContent")
    assert "\u202e" not in browser.run("document.body.textContent")


def test_smoothing_is_named_and_the_axis_is_chosen(browser, single):
    opened(browser, single)
    changed(browser, "#curves-plot input[type=range]", "0.9", "input")
    changed(browser, selects(browser, "curves-plot", "over"), "images")
    browser.wait_for(f"{RANGE} === 'x from 640 to 76800'")
    labels = browser.run("document.querySelector('.u-legend').textContent")
    assert "two, as recorded" in labels
    assert "two, smoothed by 0.9" in labels
    described = browser.run("document.querySelector('.plot').getAttribute('aria-label')")
    assert described.startswith("loss over images seen, 1 curve; smoothed by 0.9")
    assert browser.complaints() == []


def test_flicker_shows_two_runs_of_one_noise_in_turn(browser, page):
    opened(browser, page)
    image = "document.querySelector('.viewer img')"
    first = browser.run(f"{image}.src")
    toggle = "document.querySelector('#viewer button')"
    browser.run(f"{toggle}.focus()")
    browser.press(" ")
    browser.wait_for(f"{image}.src !== {first!r}")
    assert "A: " in browser.run("document.querySelector('figcaption[role=status]').textContent")
    browser.wait_for(f"{image}.src === {first!r}")
    browser.press(" ")
    assert browser.run(f"{toggle}.getAttribute('aria-pressed')") == "false"
    before = browser.run(f"{image}.src")
    time.sleep(0.8)
    assert browser.run(f"{image}.src") == before
    assert browser.run(f"{image}.naturalWidth") == 32


def test_a_click_picks_an_image_of_the_grid(browser, single):
    opened(browser, single)
    alt = "document.querySelector('.viewer img').alt"
    assert browser.run(alt) == "two, step 1200"
    browser.run("document.querySelector('.samples button').focus()")
    browser.press("Enter")
    browser.run("document.querySelectorAll('.samples button')[1].click()")
    assert browser.run(alt) == "two, step 800"
    pressed = "[...document.querySelectorAll('.samples button')].map((b) => b.ariaPressed)"
    assert browser.run(pressed) == ["true", "true", "false"]


def test_every_control_has_a_name_and_every_header_a_scope(browser, page, single):
    for file in (page, single):
        opened(browser, file)
        nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
        roles = ("button", "combobox", "checkbox", "slider", "searchbox", "link", "image")
        controls = [one for one in nodes if one.get("role", {}).get("value") in roles]
        assert len(controls) > 10
        assert [one for one in controls if not one.get("name", {}).get("value")] == []
        assert browser.run("document.querySelectorAll('th:not([scope])').length") == (
            browser.run("document.querySelectorAll('.u-legend th').length")
        )


def test_a_phone_scrolls_tables_but_not_the_page(browser, page, single):
    browser.size(400)
    for file in (page, single):
        opened(browser, file)
        assert browser.run("document.documentElement.scrollWidth") <= 400


def test_the_time_of_each_run_is_a_bar_of_its_shares(browser, page):
    opened(browser, page)
    assert browser.run("document.querySelectorAll('#shares .bar').length") == 4
    widths = browser.run(
        "[...document.querySelectorAll('#shares .bar')].map((bar) =>"
        "[...bar.children].map((part) => part.clientWidth / bar.clientWidth))"
    )
    spent = browser.run("data.time[0]")
    share = spent["train_s"] / (spent["wall_s"])
    assert max(widths[0]) == pytest.approx(share, abs=0.01)
    assert [sum(bar) for bar in widths] == pytest.approx([1] * 4, abs=0.02)


def test_a_verdict_is_on_the_screen_of_a_phone(browser, page):
    browser.size(400)
    opened(browser, page)
    head = "document.querySelector('#cells th[data-name$=verdict]')"
    assert browser.run(f"{head}.getBoundingClientRect().left") < 300


def test_print_shows_the_curves_in_dark_ink_and_hides_the_controls(browser, page):
    browser.call(
        "Emulation.setEmulatedMedia", media="print",
        features=[{"name": "prefers-color-scheme", "value": "dark"}],
    )  # fmt: skip
    opened(browser, page)
    browser.run("dispatchEvent(new Event('beforeprint'))")
    visible = "getComputedStyle(document.querySelector('{}')).display !== 'none'"
    assert browser.run(visible.format(".plot canvas"))
    assert not browser.run(visible.format(".controls"))
    assert browser.run("document.querySelector('.uplot').clientWidth") == 680
    assert browser.run("getComputedStyle(document.querySelector('.wide')).overflowX") == "visible"
    light = browser.run(
        "(() => { const canvas = document.querySelector('.plot canvas');"
        "const { data } = canvas.getContext('2d').getImageData(0, 0, 60, canvas.height);"
        "return data.some((v, n) => n % 4 === 3 && v > 200 && data[n - 1] > 200); })()"
    )
    assert not light
    assert len(browser.call("Page.printToPDF")["data"]) > 10_000


def test_dark_and_light_are_told_apart(browser, page):
    opened(browser, page)
    light = browser.run("getComputedStyle(document.body).backgroundColor")
    features = [{"name": "prefers-color-scheme", "value": "dark"}]
    browser.call("Emulation.setEmulatedMedia", features=features)
    assert browser.run("getComputedStyle(document.body).backgroundColor") != light
