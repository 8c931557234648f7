package browsertest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp/kb"
)

// TestAxe: axe-core finds nothing at three sizes, in both schemes: at first, beside an
// answer, in the other view, and in both sheets; and nothing is wider than the screen.
func TestAxe(t *testing.T) {
	source := axe(t)
	for _, size := range [][2]int64{{320, 640}, {1280, 800}, {3840, 2160}} {
		b := open(t, address, size[0], size[1], "light")
		b.wait(`document.querySelector('.example')`)
		value[any](b, source+";0")
		check := func(moment string) {
			t.Helper()
			for _, scheme := range []string{"light", "dark"} {
				b.size(size[0], size[1], scheme)
				found := value[[]string](b, `(async () => {
					await Promise.allSettled(document.getAnimations().map((a) => a.finished));
					const r = await axe.run(document, {resultTypes: ['violations']});
					return r.violations.flatMap((v) => v.nodes.map((n) => v.id + ': ' + n.target + ': ' + n.failureSummary));
				})()`)
				for _, f := range found {
					t.Errorf("%d %s, %s: %s", size[0], scheme, moment, f)
				}
				if over := value[int](b, `document.documentElement.scrollWidth - innerWidth`); over > 0 {
					t.Errorf("%d %s, %s: %d pixels wider than the screen", size[0], scheme, moment, over)
				}
			}
		}
		check("first")
		b.say(crates)
		b.answered(1)
		b.click("#first")
		b.click("#forward")
		check("a pass")
		b.press(kb.End)
		check("the end")
		b.say(savings)
		b.answered(2)
		b.set("pace", "0")
		value[bool](b, `(document.querySelector('#seek').value = 3, document.querySelector('#seek').dispatchEvent(new Event('input')))`)
		check("struck drafts")
		b.click("#view-all")
		b.wait(`document.querySelector('#all-note').textContent`)
		check("all sequences")
		b.click("#open-settings")
		check("settings")
		b.press(kb.Escape)
		b.click("#open-history")
		check("chats")
	}
}

// TestKeyboard: everything is reached and done by keyboard, and where the focus is can
// be seen.
func TestKeyboard(t *testing.T) {
	b := open(t, address, 1280, 800, "light")
	b.wait(`document.querySelector('.example') && document.activeElement.id === 'message'`)
	b.press(crates, kb.Enter)
	b.answered(1)
	seen := map[string]bool{}
	for range 60 {
		b.press(kb.Tab)
		id := value[string](b, `document.activeElement.id || document.activeElement.textContent.trim()`)
		if outline := value[string](b, `(() => { const s = getComputedStyle(document.activeElement); return document.activeElement.id === 'message' ? getComputedStyle(document.querySelector('#composer')).boxShadow : s.outlineStyle === 'none' || parseFloat(s.outlineWidth) < 2 ? '' : s.outlineColor; })()`); outline == "" && id != "" && document(b) {
			t.Errorf("%q has the focus, and it cannot be seen", id)
		}
		seen[id] = true
	}
	for _, id := range []string{"new", "open-history", "open-settings", "toggle-stage", "scheme", "log", "message", "mode", "window", "send",
		"view-answer", "view-all", "paper", "seek", "first", "back", "play", "forward", "last", "pace", "copy-pass", "Edit", "Watch", "Copy", "Again"} {
		if !seen[id] {
			t.Errorf("Tab never reaches %s", id)
		}
	}
	// The window's own keys.
	value[bool](b, `(document.querySelector('#paper').focus(), true)`)
	where := func() string { return value[string](b, `document.querySelector('#where').textContent`) }
	b.press(kb.Home)
	if w := where(); !strings.HasPrefix(w, "Pass 1 of") {
		t.Errorf("Home: %s", w)
	}
	b.press(kb.ArrowRight)
	if w := where(); !strings.HasPrefix(w, "Pass 2 of") {
		t.Errorf("→: %s", w)
	}
	b.press(kb.ArrowLeft)
	if w := where(); !strings.HasPrefix(w, "Pass 1 of") {
		t.Errorf("←: %s", w)
	}
	b.press(" ")
	b.wait(`document.querySelector('#play-label').textContent === 'Pause'`)
	b.press(kb.End)
	b.wait(`document.querySelector('#where').textContent.startsWith('All')`)

	// Sheets take the focus, and give it back.
	value[bool](b, `(document.querySelector('#open-settings').focus(), true)`)
	b.press(kb.Enter)
	b.wait(`document.querySelector('#settings').open && document.querySelector('#settings').contains(document.activeElement)`)
	b.press(kb.Escape)
	b.wait(`!document.querySelector('#settings').open && document.activeElement.id === 'open-settings'`)

	// The schemes, and the stage.
	value[bool](b, `(document.querySelector('#scheme').focus(), true)`)
	colours := []string{}
	for range 3 {
		b.press(kb.Enter)
		colours = append(colours, value[string](b, `getComputedStyle(document.body).backgroundColor`))
	}
	if colours[0] == colours[1] || colours[0] != colours[2] {
		t.Errorf("light, dark, as the system has them (light): %v", colours)
	}
	value[bool](b, `(document.querySelector('#toggle-stage').focus(), true)`)
	b.press(" ")
	b.wait(`document.querySelector('#stage').offsetHeight === 0`)
	b.press(" ")
	b.wait(`document.querySelector('#stage').offsetHeight > 0`)
}

// document reports whether the focus is in the page, not in the browser around it.
func document(b *tab) bool {
	return value[bool](b, `document.activeElement !== document.body`)
}

// TestZoom: at 200 % of a small screen, and with text twice as large, nothing is cut off
// at the sides and all controls can be reached.
func TestZoom(t *testing.T) {
	for name, size := range map[string][2]int64{"zoom of 200 %": {640, 400}, "a low screen": {1280, 400}, "small": {320, 480}} {
		b := open(t, address, size[0], size[1], "light")
		b.wait(`document.querySelector('.example')`)
		b.say(crates)
		b.answered(1)
		checkReach(t, b, name)
	}
	b := open(t, address, 1280, 800, "light")
	value[bool](b, `(document.documentElement.style.fontSize = '200%', true)`)
	b.wait(`document.querySelector('.example')`)
	b.say(crates)
	b.answered(1)
	checkReach(t, b, "text twice as large")
}

// checkReach scrolls to each control.
func checkReach(t *testing.T, b *tab, name string) {
	t.Helper()
	if over := value[int](b, `document.documentElement.scrollWidth - innerWidth`); over > 0 {
		t.Errorf("%s: %d pixels wider than the screen", name, over)
	}
	lost := value[[]string](b, `[...document.querySelectorAll('main button, main select, main textarea, header button')].filter((e) => {
		e.scrollIntoView({block: 'center'});
		const r = e.getBoundingClientRect();
		return e.offsetParent && !(r.width > 0 && r.left >= -1 && r.right <= innerWidth + 1 && r.top >= -1 && r.bottom <= innerHeight + 1);
	}).map((e) => e.id || e.textContent)`)
	if len(lost) > 0 {
		slices.Sort(lost)
		t.Errorf("%s: out of reach: %q", name, lost)
	}
}

// TestStill: for who wants things not to move nothing does.
func TestStill(t *testing.T) {
	b := open(t, address, 1280, 800, "light")
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-reduced-motion", Value: "reduce"}}})
	b.say(crates)
	b.answered(1)
	b.click("#first")
	b.click("#forward")
	if n := value[int](b, `document.getAnimations().length`); n != 0 {
		t.Errorf("%d animations", n)
	}
	b.click("#play")
	b.wait(fmt.Sprintf(`document.querySelector('#where').textContent.startsWith(%q)`, "All"))
}
