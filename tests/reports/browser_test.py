#!/usr/bin/env python3
"""browser_test.py DUMP_PAGE CHROMIUM: opens report pages of synthetic sweeps in a headless browser and uses them."""
import os
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from devtools import Browser, Tab  # noqa: E402

DUMP_PAGE, CHROMIUM = sys.argv[1:3] if len(sys.argv) > 2 else (None, None)

# Texts of a chart that lie upon each other; turned texts are left out, their boxes say nothing.
OVERLAPS = """(() => {
  const found = [];
  for (const svg of document.querySelectorAll('.chart svg')) {
    const texts = [...svg.querySelectorAll('text')].filter((t) => !t.hasAttribute('transform') && t.textContent.trim())
      .map((t) => [t.textContent, t.getBoundingClientRect()]);
    texts.forEach(([a, p], i) => texts.slice(i + 1).forEach(([b, q]) => {
      const w = Math.min(p.right, q.right) - Math.max(p.left, q.left), h = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
      if (w > 1.5 && h > 4) found.push(a + ' | ' + b);
    }));
  }
  return found.slice(0, 10);
})()"""
# Texts that leave their chart.
OUTSIDE = """(() => [...document.querySelectorAll('.chart svg')].flatMap((svg) => {
  const box = svg.getBoundingClientRect();
  return [...svg.querySelectorAll('text')].filter((t) => { const r = t.getBoundingClientRect(); return r.width && (r.left < box.left - 3 || r.right > box.right + 3 || r.bottom > box.bottom + 3); }).map((t) => t.textContent);
}).slice(0, 10))()"""


class ReportPage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="shardscope-pages-")
        cls.pages = {}
        for name, arguments in {"none": ["0"], "one": ["1"], "forty": ["40"], "many": ["500"], "hostile": ["40", "hostile"], "two": ["40", "two"]}.items():
            cls.pages[name] = os.path.join(cls.folder.name, name + ".html")
            subprocess.run([DUMP_PAGE, arguments[0], cls.pages[name], *arguments[1:]], check=True, stdout=subprocess.DEVNULL)
        cls.browser = Browser(CHROMIUM)

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.folder.cleanup()

    def tab(self, name, width=1400, dark=False, fragment=""):
        tab = Tab(self.browser, width, dark=dark)
        self.addCleanup(tab.close)
        tab.open(self.pages[name], fragment)
        return tab

    def test_every_page_opens_without_an_error_or_a_request(self):
        for name in self.pages:
            for width in (1400, 390):
                with self.subTest(page=name, width=width):
                    tab = self.tab(name, width)
                    self.assertEqual(tab.wrongs(), [])
                    self.assertLessEqual(tab.run("document.documentElement.scrollWidth"), width)
                    self.assertEqual(tab.run("document.body.innerText.match(/undefined|NaN|\\[object/g)"), None)

    def test_texts_of_charts_do_not_lie_upon_each_other(self):
        for name in ("one", "forty", "many", "hostile"):
            for width in (1400, 900, 390):
                with self.subTest(page=name, width=width):
                    tab = self.tab(name, width)
                    self.assertEqual(tab.run(OVERLAPS), [])
                    self.assertEqual(tab.run(OUTSIDE), [])

    def test_hostile_names_stay_text(self):
        tab = self.tab("hostile")
        self.assertIsNone(tab.run("window.broken"))
        self.assertEqual(tab.run("document.querySelectorAll('img, iframe, object, embed').length"), 0)
        self.assertEqual(tab.run("document.querySelectorAll('script').length"), 2)
        self.assertIn("<img src=x", tab.run("document.getElementById('title').textContent"))

    def test_a_page_of_500_cases_is_ready_soon(self):
        begin = time.monotonic()
        tab = self.tab("many")
        self.assertLess(time.monotonic() - begin, 15)
        self.assertGreater(tab.run("document.querySelectorAll('#case-table tbody tr').length"), 100)

    def test_the_three_questions_stand_first(self):
        tab = self.tab("forty")
        self.assertEqual(tab.run("[...document.querySelectorAll('.answer h2')].map((h) => h.textContent)"),
                         ["How should I wrap it?", "Why is it slow there?", "Where does it stop fitting?"])
        self.assertTrue(tab.run("document.querySelector('#answers').getBoundingClientRect().bottom < innerHeight"))

    def test_charts_have_axes_with_names(self):
        tab = self.tab("forty")
        names = tab.run("[...document.querySelectorAll('.chart .axis-name')].map((t) => t.textContent)")
        self.assertEqual(names, ["step time (ms)", "wrap (coarse to fine)", "traced step (ms)", "live bytes at the peak (MiB)"])
        self.assertIn("13 units", tab.run("document.querySelector('#step svg').textContent"))

    def test_a_click_selects_a_case_and_a_reload_keeps_it(self):
        tab = self.tab("forty")
        tab.run("document.querySelectorAll('#step .point')[9].dispatchEvent(new MouseEvent('click', {bubbles: true}))")
        title = tab.run("document.querySelector('.case-title').textContent")
        self.assertIn("case=", tab.run("location.hash"))
        tab.run("[...document.querySelectorAll('#partition button')].find((b) => b.textContent === 'percent').click()")
        tab.reload()
        self.assertEqual(tab.run("document.querySelector('.case-title').textContent"), title)
        self.assertEqual(tab.run("[...document.querySelectorAll('#partition button')].find((b) => b.textContent === 'percent').getAttribute('aria-pressed')"), "true")
        self.assertEqual(tab.wrongs(), [])

    def test_a_fragment_that_names_nothing_is_no_error(self):
        tab = self.tab("forty", fragment="#case=nobody&sweep=9&x=%22&only.strategy=77&y=1&parts=%3Cb%3E")
        self.assertEqual(tab.wrongs(), [])
        self.assertEqual(tab.run("document.querySelectorAll('.point.chosen').length"), 1)

    def test_the_keyboard_reaches_points_bars_and_rows(self):
        tab = self.tab("forty")
        tab.run("document.querySelectorAll('#partition .bar-row')[7].focus()")
        tab.key("Enter")
        first = tab.run("document.querySelector('.case-title code').textContent")
        self.assertTrue(tab.run("document.activeElement.classList.contains('bar-row')"))
        tab.run("document.querySelectorAll('#case-table tbody tr')[20].focus()")
        tab.key("Enter")
        self.assertNotEqual(tab.run("document.querySelector('.case-title code').textContent"), first)
        self.assertEqual(tab.run("document.querySelectorAll('#case-table tr.current').length"), 1)

    def test_the_table_sorts_and_filters(self):
        tab = self.tab("forty")
        press = "[...document.querySelectorAll('#case-table th button')].find((b) => b.textContent === 'step').click()"
        tab.run(press)
        column = tab.run("[...document.querySelectorAll('#case-table th')].findIndex((t) => t.getAttribute('aria-sort') === 'ascending')")
        steps = f"[...document.querySelectorAll('#case-table tbody tr')].map((r) => parseFloat(r.cells[{column}].textContent)).filter((v) => v === v)"
        values = tab.run(steps)
        self.assertEqual(values, sorted(values))
        tab.run(press)
        self.assertEqual(tab.run(steps), sorted(values, reverse=True))
        tab.run("(() => { const i = document.querySelector('#cases input'); i.value = 'sublayer pre'; i.dispatchEvent(new Event('input')); })()")
        self.assertEqual(tab.run("document.querySelectorAll('#case-table tbody tr').length"), 4)
        tab.run("[...document.querySelectorAll('#cases button')].find((b) => b.textContent === 'all columns').click()")
        self.assertGreater(tab.run("document.querySelectorAll('#case-table th').length"), 25)
        self.assertEqual(tab.wrongs(), [])

    def test_filters_narrow_the_charts(self):
        tab = self.tab("forty")
        before = tab.run("document.querySelectorAll('#partition .bar-row').length")
        tab.run("(() => { const s = [...document.querySelectorAll('#filters label')].find((l) => l.textContent.startsWith('strategy')).querySelector('select'); s.value = '0'; s.dispatchEvent(new Event('change')); })()")
        self.assertEqual(tab.run("document.querySelectorAll('#partition .bar-row').length"), before / 2)
        tab.run("(() => { const s = document.querySelector('#filters select'); s.value = 'backward_prefetch'; s.dispatchEvent(new Event('change')); })()")
        self.assertIn("backward prefetch", tab.run("[...document.querySelectorAll('#step .axis-name')].map((t) => t.textContent).join()"))
        self.assertEqual(tab.wrongs(), [])

    def test_every_button_can_be_pressed(self):
        for name in ("forty", "two"):
            tab = self.tab(name)
            tab.run("HTMLAnchorElement.prototype.click = () => {}")   # downloads stay away
            for section in ("step", "partition", "memory", "case", "cases", "overview", "environment"):
                for i in range(tab.run(f"document.querySelectorAll('#{section} button').length")):
                    tab.run(f"document.querySelectorAll('#{section} button')[{i}]?.click()")
            self.assertEqual(tab.wrongs(), [])

    def test_the_timeline_zooms_tells_and_highlights(self):
        tab = self.tab("forty")
        tab.wait_for("document.querySelector('#case canvas')")
        tab.run("document.querySelector('#case canvas').scrollIntoView({block: 'center'})")
        picture = "document.querySelector('#case canvas').toDataURL().length"
        before = tab.run(picture)
        box = tab.run("(() => { const r = document.querySelector('#case canvas').getBoundingClientRect(); return [r.x, r.y, r.width, r.height]; })()")
        # The end of the scrolling may hide the first tip.
        for i in range(50):
            tab.mouse("mouseMoved", box[0] + box[2] * 0.5 + i % 2, box[1] + 34)
            if not tab.run("document.getElementById('tip').hidden"):
                break
            time.sleep(0.05)
        self.assertIn("lasts", tab.run("document.getElementById('tip').textContent"))
        tab.run("document.querySelector('#case canvas').focus()")
        tab.key("+")
        tab.wait_for(f"{picture} !== {before}")
        tab.run("(() => { const s = document.querySelector('#case .unit-picker select'); s.value = '2'; s.dispatchEvent(new Event('change')); })()")
        self.assertEqual(tab.wrongs(), [])

    def test_darkness_follows_the_system(self):
        light = self.tab("forty").run("getComputedStyle(document.body).backgroundColor")
        self.assertNotEqual(self.tab("forty", dark=True).run("getComputedStyle(document.body).backgroundColor"), light)

    def test_a_saved_chart_is_an_svg_of_its_own(self):
        tab = self.tab("forty")
        tab.run("(() => { const make = URL.createObjectURL; URL.createObjectURL = (blob) => { window.saved = blob.text(); return make(blob); }; HTMLAnchorElement.prototype.click = () => {}; })()")
        tab.run("[...document.querySelectorAll('#memory .exports button')][0].click()")
        text = tab.run("window.saved")
        self.assertTrue(text.startswith("<svg"))
        self.assertNotIn("var(--", text.split("style=")[1])
        self.assertEqual(tab.run("window.saved.then((t) => new DOMParser().parseFromString(t, 'image/svg+xml').querySelector('parsererror') === null)"), True)


if __name__ == "__main__":
    if CHROMIUM is None:
        sys.exit(__doc__)
    unittest.main(argv=sys.argv[:1], verbosity=2)
