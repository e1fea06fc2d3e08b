"""The report page in a real browser: from disk, without a network, for keyboards, screen readers and phones."""

import json
import time

import numpy as np
import pytest

from tests.report.making import (
    HOSTILE,
    closed_form_findings,
    file_findings,
    hostile_findings,
    long_findings,
    lost,
    photo_findings,
    text_findings,
)
from unspur.report.page import render

PHONE, DESK = 375, 1200
MAKERS = {
    "photo": photo_findings,
    "text": text_findings,
    "hostile": hostile_findings,
    "lost": lost,
    "leace": closed_form_findings,
    "long": long_findings,
    "files": file_findings,
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Addresses of pages on disk."""
    folder = tmp_path_factory.mktemp("pages")
    found = {}
    for name, make in MAKERS.items():
        path = folder / f"{name}.html"
        path.write_text(render(make()), encoding="utf-8")
        found[name] = path.as_uri()
    return found


@pytest.fixture
def visit(browser, pages):
    """Open a page at a width, in a colour scheme, on a medium."""

    def opened(name="photo", *, width=DESK, dark=False, medium="", still=True):
        features = {
            "prefers-color-scheme": "dark" if dark else "light",
            "prefers-reduced-motion": "reduce" if still else "no-preference",
        }
        pairs = [{"name": key, "value": value} for key, value in features.items()]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": medium, "features": pairs})
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        browser.get(pages[name])
        return browser

    return opened


def ask(browser, script, *arguments):
    return browser.execute_script(f"return {script}", *arguments)


def wait_for(browser, script):
    """Until something is true; a page that never gets there fails the test."""
    for _ in range(100):
        if ask(browser, script):
            return
        time.sleep(0.03)
    raise AssertionError(f"never became true: {script}")


def choose(browser, name, value):
    browser.execute_script(f"document.querySelector('input[name={name}][value=\"{value}\"]').click()")


def lone_row(browser):
    """A row that has a place to itself, so that pointing there means it."""
    places = np.array(ask(browser, "Array.from({length: unspurReport.rows}, (_, k) => unspurReport.position(k))"))
    apart = np.linalg.norm(places[:, None] - places[None], axis=2) + 1e9 * np.eye(len(places))
    return int(apart.min(axis=1).argmax()), places


def point_at(browser, row):
    browser.execute_script("document.getElementById('plane').scrollIntoView({block: 'center', behavior: 'instant'})")
    x, y = ask(browser, "unspurReport.position(arguments[0])", row)
    box = ask(browser, "(({left, top}) => ({left, top}))(document.getElementById('plane').getBoundingClientRect())")
    where = {"type": "mouseMoved", "x": box["left"] + x, "y": box["top"] + y, "button": "none"}
    browser.execute_cdp_cmd("Input.dispatchMouseEvent", where)


def press(browser, *keys):
    from selenium.webdriver.common.by import By

    browser.find_element(By.ID, "plane").send_keys(*keys)


def test_it_opens_from_disk_without_network_and_without_errors(visit):
    browser = visit("photo")
    browser.get_log("performance")
    browser.get_log("browser")
    visit("photo")
    wait_for(browser, "'unspurReport' in window")
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert any(url.startswith("file:") for url in asked)  # the control: the log sees requests
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert [url for url in asked if url.startswith("file:") and not url.endswith("photo.html")] == []
    assert browser.get_log("browser") == []


def test_the_policy_stops_what_is_not_ours(visit):
    browser = visit()
    wait_for(browser, "'unspurReport' in window")
    browser.get_log("browser")
    added = "const s = document.createElement('script'); s.textContent = 'window.intruder = 1'; document.body.append(s)"
    browser.execute_script(added)
    assert ask(browser, "window.intruder") is None
    assert any("Content Security Policy" in entry["message"] for entry in browser.get_log("browser"))


def test_the_switch_moves_rows_to_where_the_removal_puts_them(visit):
    browser = visit()
    _, before = lone_row(browser)
    choose(browser, "when", "1")
    _, after = lone_row(browser)
    assert before[:, 0].std() > 50  # pixels
    assert after[:, 0].std() < 0.5  # the first spurious direction is gone
    assert after[:, 1] == pytest.approx(before[:, 1], abs=0.5)  # and the main-task one is not
    choose(browser, "when", "0")
    assert lone_row(browser)[1] == pytest.approx(before)


def test_choosing_a_direction_changes_axes_and_means(visit):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import Select

    browser = visit()
    table = "document.getElementById('means').textContent"
    before, positions = ask(browser, table), lone_row(browser)[1]
    select = Select(browser.find_element(By.ID, "across"))
    select.select_by_visible_text("photo 2")
    after = ask(browser, table)
    assert "photo 2" in after
    assert "photo 2" not in before
    view = photo_findings().view
    axis = [one.name for one in view.axes].index("photo 2")
    mean = view.before[photo_findings().group == 0][:, axis].mean()
    shown = ask(browser, "document.querySelector('#means tbody td').textContent").replace("−", "-")
    assert float(shown) == pytest.approx(mean, abs=0.006)
    assert lone_row(browser)[1] != pytest.approx(positions)


def test_legend_buttons_hide_groups_and_say_so(visit):
    browser = visit()
    count = "Array.from({length: unspurReport.rows}, (_, k) => unspurReport.shown(k)).filter(Boolean).length"
    everything = ask(browser, count)
    button = "document.querySelector('#legend button')"
    browser.execute_script(f"{button}.click()")
    assert ask(browser, f"{button}.getAttribute('aria-pressed')") == "false"
    assert ask(browser, count) == everything - int((photo_findings().group == 0).sum())
    browser.execute_script(f"{button}.click()")
    assert ask(browser, count) == everything
    choose(browser, "colour", "right")
    names = ask(browser, "Array.from(document.querySelectorAll('#legend button'), (b) => b.textContent)")
    assert names == ["right", "wrong"]


def test_pointing_at_a_row_shows_its_picture_and_its_name(visit):
    browser = visit()
    row, _ = lone_row(browser)
    assert ask(browser, "document.getElementById('tip').hidden")
    point_at(browser, row)
    wait_for(browser, "!document.getElementById('tip').hidden")
    assert photo_findings().ids[row] in ask(browser, "document.getElementById('tip').textContent")
    read = (
        "Array.from(document.getElementById('tip-picture').getContext('2d').getImageData(0, 0, 128, 128).data)"
        ".filter((_, k) => k % 4 < 3)"
    )
    shown = np.array(ask(browser, read), dtype=float).reshape(128, 128, 3)[2::4, 2::4] / 255
    images = photo_findings().content.images
    distance = np.abs(images - shown).mean(axis=(1, 2, 3))
    assert distance[row] < 0.08
    assert np.median(distance) > 2 * distance[row]  # the control: other rows look different
    browser.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": 2, "y": 2, "button": "none"})
    wait_for(browser, "document.getElementById('tip').hidden")


def test_pointing_at_a_text_shows_it(visit):
    browser = visit("text")
    row, _ = lone_row(browser)
    point_at(browser, row)
    wait_for(browser, "!document.getElementById('tip').hidden")
    text = ask(browser, "document.querySelector('#tip .text').textContent")
    assert text.rstrip("…") == text_findings().content[row][:159].rstrip()


def test_arrow_keys_walk_from_row_to_row_and_are_heard(visit):
    from selenium.webdriver.common.keys import Keys

    browser = visit()
    press(browser, Keys.HOME)
    wait_for(browser, "unspurReport.state().at >= 0")  # a busy machine hears a key later
    first = ask(browser, "unspurReport.state().at")
    _, places = lone_row(browser)
    assert first == places[:, 0].argmin()
    said = ask(browser, "document.getElementById('announce').textContent")
    assert photo_findings().ids[first] in said
    seen = [first]
    for _ in range(5):
        press(browser, Keys.ARROW_RIGHT)
        seen.append(ask(browser, "unspurReport.state().at"))
    assert len(set(seen)) == 6
    assert np.all(np.diff(places[seen, 0]) > 0)
    assert ask(browser, "document.getElementById('announce').textContent") != said
    press(browser, Keys.END)
    assert ask(browser, "unspurReport.state().at") == places[:, 0].argmax()
    press(browser, Keys.ESCAPE)
    assert ask(browser, "document.getElementById('tip').hidden")
    assert ask(browser, "unspurReport.state().at") == -1


def test_zoom_by_buttons_wheel_and_keys_and_back(visit):
    browser = visit()
    width = "(([left, right]) => right - left)(unspurReport.state().seen)"
    start = ask(browser, width)
    browser.execute_script("document.getElementById('zoom-in').click()")
    closer = ask(browser, width)
    assert closer < start
    press(browser, "+")
    assert ask(browser, width) < closer
    browser.execute_script("document.getElementById('zoom-reset').click()")
    assert ask(browser, width) == start
    wheel = "document.getElementById('plane').dispatchEvent(new WheelEvent('wheel', {deltaY: -200, cancelable: true}))"
    browser.execute_script("document.getElementById('plane').blur()")
    browser.execute_script(wheel)
    assert ask(browser, width) == start  # a page that scrolls by is not caught
    browser.execute_script("document.getElementById('plane').focus()")
    browser.execute_script(wheel)
    assert ask(browser, width) < start


def test_hostile_names_stay_text(visit):
    browser = visit("hostile")
    wait_for(browser, "'unspurReport' in window")
    row, _ = lone_row(browser)
    point_at(browser, row)
    wait_for(browser, "!document.getElementById('tip').hidden")
    assert HOSTILE[0] in ask(browser, "document.querySelector('#legend').textContent")
    assert HOSTILE[0] in ask(browser, "document.body.innerText")
    assert ask(browser, "Array.from(document.images).every((image) => image.src.startsWith('data:'))")
    assert ask(browser, "document.querySelectorAll('[onerror]').length") == 0
    assert ask(browser, "document.images.length") > 0  # the control: there are pictures, all of them ours
    from selenium.common.exceptions import NoAlertPresentException

    with pytest.raises(NoAlertPresentException):
        browser.switch_to.alert.accept()


@pytest.mark.parametrize(
    ("name", "dark", "width"),
    [("photo", False, DESK), ("text", True, DESK), ("lost", True, PHONE), ("leace", False, PHONE)],
)
def test_nothing_serious_is_found_by_axe(visit, axe, name, dark, width):
    browser = visit(name, dark=dark, width=width)
    browser.execute_script("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    browser.execute_script(axe)
    # As text: axe cuts what it quotes, also in the middle of a character, which the driver cannot pass on as it is.
    script = "const done = arguments[0]; axe.run().then((found) => done(JSON.stringify(found)))"
    found = json.loads(browser.execute_async_script(script))
    grave = [v for v in found["violations"] if v["impact"] in ("serious", "critical")]
    assert len(found["passes"]) > 20  # the control: it looked
    assert grave == [], [(v["id"], v["nodes"][0]["html"], v["nodes"][0]["failureSummary"]) for v in grave]


@pytest.mark.parametrize("name", MAKERS)
def test_a_phone_need_not_scroll_sideways(visit, name):
    browser = visit(name, width=PHONE)
    browser.execute_script("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert ask(browser, "document.documentElement.scrollWidth") <= PHONE
    assert ask(browser, "document.getElementById('plane').getBoundingClientRect().width") > 300


def test_the_tests_are_closed_at_first_and_open_on_demand(visit):
    browser = visit("photo")
    shown = "[...document.querySelectorAll('#tests table')].filter((one) => one.checkVisibility()).length"
    assert ask(browser, shown) == 0
    browser.execute_script("document.querySelector('#tests summary').click()")
    assert ask(browser, shown) == 1


def test_page_and_chart_follow_the_colour_scheme(visit):
    browser = visit(dark=False)
    pixels = "document.getElementById('plane').getContext('2d').getImageData(60, 50, 600, 300).data"
    of_ink = f"{pixels}.some((value, k, all) => k % 4 === 0 && value === arguments[0] && all[k + 3] === 255)"
    light, dark = 0x1A, 0xE6  # the red of the boundary of the head

    def wait_for_ink(red):
        for _ in range(100):  # drawn with the next frame
            if ask(browser, of_ink, red):
                return
            time.sleep(0.03)
        raise AssertionError(f"no line with a red of {red}")

    ground = "getComputedStyle(document.body).backgroundColor"
    bar = "getComputedStyle(document.querySelector('.chart text')).fill"
    wait_for_ink(light)
    assert (ask(browser, ground), ask(browser, bar)) == ("rgb(255, 255, 255)", "rgb(26, 29, 32)")
    media = {"media": "", "features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    wait_for_ink(dark)
    assert (ask(browser, ground), ask(browser, bar)) == ("rgb(18, 21, 24)", "rgb(230, 233, 235)")


def test_a_chart_is_drawn_in_the_colours_that_a_system_forces(visit):
    browser = visit()
    ink = "getComputedStyle(document.documentElement).getPropertyValue('--ink').trim()"
    assert ask(browser, ink) != "CanvasText"
    forced = {"media": "", "features": [{"name": "forced-colors", "value": "active"}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", forced)
    try:
        browser.get(browser.current_url)
        assert ask(browser, ink) == "CanvasText"
        count = "document.getElementById('plane').getContext('2d').getImageData(0, 0, 900, 500).data.some((v) => v > 0)"
        assert ask(browser, count)  # it takes such a name for a colour, and draws
        mark = "getComputedStyle(document.querySelectorAll('.chip .mark')[arguments[0]]).fill"
        assert ask(browser, mark, 0) != ask(browser, mark, 1)  # groups and methods are still told apart
    finally:
        visit()


def test_names_of_ten_thousand_letters_neither_widen_the_page_nor_hold_it_up(visit):
    browser = visit("long", width=PHONE)
    wait_for(browser, "'unspurReport' in window")
    assert ask(browser, "document.documentElement.scrollWidth") <= PHONE
    longest = "Math.max(...[...document.querySelectorAll('#across option')].map((one) => one.textContent.length))"
    assert 60 < ask(browser, longest) < 200


def test_on_paper_it_is_light_and_without_controls(visit):
    browser = visit("text", dark=True, medium="print")
    wait_for(browser, "'unspurReport' in window")
    display = "getComputedStyle(document.querySelector(arguments[0])).display"
    assert ask(browser, "getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    for control in (".controls", ".copy", "nav"):
        assert ask(browser, display, control) == "none"
    assert ask(browser, display, "#plane") == "block"
    visit()
    assert ask(browser, display, ".controls") == "flex"  # the control: on a screen they are there
    paper = browser.execute_cdp_cmd("Page.printToPDF", {})
    assert len(paper["data"]) > 10_000


def test_copying_says_that_it_did_or_selects_the_text(visit):
    browser = visit("text")
    command = ask(browser, "document.getElementById('command').textContent")
    for fake in ("{writeText: async (text) => { window.taken = text; }}", "undefined"):
        browser.execute_script(f"Object.defineProperty(navigator, 'clipboard', {{configurable: true, value: {fake}}})")
        browser.execute_script("document.getElementById('copied').textContent = ''")
        browser.execute_script("document.querySelector('.copy').click()")
        wait_for(browser, "document.getElementById('copied').textContent !== ''")
        said = ask(browser, "document.getElementById('copied').textContent")
        if fake == "undefined":
            assert said == "The text is selected; copy it with your keyboard."
            assert ask(browser, "getSelection().toString().trim()") == command.strip()
        else:
            assert said == "Copied."
            assert ask(browser, "window.taken") == command


def test_without_scripts_everything_but_the_scatter_is_there(visit):
    browser = visit()
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        visit()
        shown = browser.find_element("tag name", "body").text
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert "The scatter plot needs JavaScript" in shown
    assert "Mean score of each group" in shown
    assert "across" not in shown
    assert "The tests" in shown
