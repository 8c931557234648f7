package browsertest

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// TestAsk: a question is answered, its passes are shown and can be stepped through, and
// a reload keeps the conversation.
func TestAsk(t *testing.T) {
	b := open(t, address, 1280, 800, "light")
	b.wait(`document.querySelector('.example')`)
	b.say(crates)
	if text := b.answered(1); !strings.Contains(text, "= 18 apples left") {
		t.Errorf("%q", text)
	}
	b.wait(`/^All \d+ passes$/.test(document.querySelector('#where').textContent)`) // played to the end
	if tape := value[string](b, `document.querySelector('#tape').textContent`); !strings.Contains(tape, "= 18 apples left.\n#### 18") {
		t.Errorf("the tape ends with %q", tape)
	}
	for _, id := range []string{"f-rate", "f-forward", "f-first", "f-rows", "f-cached"} {
		if f := value[string](b, fmt.Sprintf(`document.getElementById(%q).textContent`, id)); !strings.ContainsAny(f, "123456789") {
			t.Errorf("%s is %q", id, f)
		}
	}
	b.click("#first")
	b.wait(`document.querySelector('#where').textContent.startsWith('Pass 1 of') && document.querySelector('#tape .committed')`)
	first := value[string](b, `document.querySelector('#tape').textContent`)
	b.click("#forward")
	b.wait(`document.querySelector('#where').textContent.startsWith('Pass 2 of')`)
	if second := value[string](b, `document.querySelector('#tape').textContent`); second == first {
		t.Errorf("pass 2 looks like pass 1: %q", second)
	}
	b.click("#back")
	if again := value[string](b, `document.querySelector('#tape').textContent`); again != first {
		t.Errorf("stepped back to %q from %q", again, first)
	}
	said := value[string](b, `document.querySelector('#spoken').textContent`)
	if !strings.HasPrefix(said, "Pass 1, ") || !strings.Contains(said, "committed “") {
		t.Errorf("said: %q", said)
	}
	// By sentence, each once.
	if n := value[int](b, `[...document.querySelectorAll('#announcer p')].filter((p) => p.textContent.includes('= 18 apples left.')).length`); n != 1 {
		t.Errorf("the last sentence was announced %d times", n)
	}

	b.say("A hall has 5 rows with 9 chairs in each row. How many chairs are there?")
	b.answered(2)
	b.do(chromedp.Reload())
	b.wait(`document.querySelectorAll('.message').length === 4`)
	if text := value[string](b, `document.querySelector('.assistant .markdown').innerText`); !strings.Contains(text, "= 18 apples left") {
		t.Errorf("after a reload: %q", text)
	}

	// What follows an edited message goes.
	b.click(".user .actions button")
	b.wait(`document.activeElement.matches('.edit textarea')`)
	value[bool](b, `(document.activeElement.value = 'What is 17 + 25?', true)`)
	b.press(kb.Enter)
	if text := b.answered(1); !strings.Contains(text, "42") {
		t.Errorf("edited: %q", text)
	}
	if n := value[int](b, `document.querySelectorAll('.message').length`); n != 2 {
		t.Errorf("%d messages after an edit", n)
	}

	// Another conversation, and back.
	b.click("#new")
	b.wait(`document.querySelector('.welcome')`)
	b.say("Count from 3 to 20.")
	b.answered(1)
	b.click("#open-history")
	b.wait(`document.querySelectorAll('#chats .open').length === 2`)
	b.click("#chats li:nth-child(2) .open")
	b.wait(`document.querySelector('.user .said')?.textContent.includes('17 + 25')`)
}

// long makes the model write thousands of tokens.
const long = `{"type": "array", "items": {"type": "integer", "minimum": 100, "maximum": 999}, "minItems": 900}`

// TestStop: an answer can be stopped, by the button and by Escape; what came is kept.
func TestStop(t *testing.T) {
	b := open(t, address, 1280, 800, "dark")
	b.set("schema", long)
	b.set("mode", "ar")
	for n, stop := range []func(){func() { b.click("#send") }, func() { b.press(kb.Escape) }} {
		b.say("Count.")
		b.wait(fmt.Sprintf(`document.querySelectorAll('.assistant')[%d]?.querySelector('.markdown').innerText.length > 40`, n))
		if label := value[string](b, `document.querySelector('#send-label').textContent`); label != "Stop" {
			t.Errorf("the button says %s while an answer comes", label)
		}
		stop()
		text := b.answered(n + 1)
		if !strings.HasPrefix(text, "[") || strings.HasSuffix(text, "]") {
			t.Errorf("stopped: %.80q", text)
		}
		if note := value[string](b, fmt.Sprintf(`document.querySelectorAll('.assistant .note')[%d].textContent`, n)); note != "Stopped" {
			t.Errorf("the note says %q", note)
		}
	}
}

// TestHostile: markup in what the model writes stays text, also where it is inside
// Markdown, and nothing is fetched for it.
func TestHostile(t *testing.T) {
	b := open(t, address, 1280, 800, "light")
	const script, image = `<script>document.title='got in'</script>`, `<img src=x onerror=document.title='got_in'>`
	for n, hostile := range []string{script, image} {
		schema, _ := json.Marshal(map[string]string{"const": hostile})
		b.set("schema", string(schema))
		b.say("Say it.")
		if text := b.answered(n + 1); !strings.Contains(text, hostile) {
			t.Errorf("the model was made to write %s: the page shows %q", hostile, text)
		}
	}
	// All sorts of it, as a conversation that was kept.
	parts := []string{
		"a\n\n<script>document.title='got in'</script>\n\n<div onclick=\"document.title='got in'\">x</div>",
		"**<img src=x onerror=\"document.title='got in'\">** <svg/onload=document.title='got-in'>",
		"[a](javascript:document.title='got-in') [b](data:text/html,x) [c](<jAvAscript:alert(1)>) <javascript:alert(1)>",
		"![alt](http://127.0.0.1:1/x.png) ![y](x \"onerror=alert(1)\")",
		"```html\n<script>document.title='got in'</script>\n```",
		"| a |\n|---|\n| <iframe src=//127.0.0.1:1></iframe> |",
		"<style>body{display:none}</style><base href=//127.0.0.1:1><form action=x><input name=innerHTML></form>",
		"<math><mtext><table><mglyph><style><!--</style><img title=\"--&gt;&lt;img src=1 onerror=alert(1)&gt;\">",
	}
	messages := []map[string]string{}
	for i, p := range parts {
		messages = append(messages, map[string]string{"id": fmt.Sprint(i), "role": "assistant", "content": p})
	}
	kept, _ := json.Marshal([]any{map[string]any{"id": "1", "title": script, "at": 1, "messages": messages}})
	value[bool](b, fmt.Sprintf(`(localStorage.setItem('windrow.chats', %q), true)`, kept))
	b.do(chromedp.Reload())
	b.wait(fmt.Sprintf(`document.querySelectorAll('.message').length === %d`, len(parts)))
	time.Sleep(300 * time.Millisecond)
	b.click("#open-history")
	if n := value[int](b, `document.querySelectorAll('#log :is(script, img, svg, iframe, style, base, form, input, math, object), #log [onclick], #log [onerror], #log [style]').length`); n != 0 {
		t.Errorf("%d elements were made of it: %s", n, value[string](b, `document.querySelector('#log').innerHTML`))
	}
	if links := value[[]string](b, `[...document.querySelectorAll('#log a')].map((a) => a.href).filter((h) => !/^https?:/.test(h) && h)`); len(links) > 0 {
		t.Errorf("links to %q", links)
	}
	if title := value[string](b, `document.title`); title != "Windrow" {
		t.Errorf("a script ran: the title is %q", title)
	}
	if text := value[string](b, `document.querySelector('#log').innerText`); strings.Count(text, "<script>") != 2 || !strings.Contains(text, "<iframe src=//") {
		t.Errorf("it is not shown as text: %s", text)
	}
	if n := value[int](b, `document.querySelectorAll('.code-block button').length`); n != 1 {
		t.Errorf("%d buttons to copy code", n)
	}
}

// TestPolicy: the policy would refuse what came past the rest.
func TestPolicy(t *testing.T) {
	b := open(t, address, 1280, 800, "light")
	value[bool](b, `(() => { try { document.body.insertAdjacentHTML('beforeend', '<img src=x onerror="document.title = 1">'); return false; } catch { return true; } })()`)
	value[bool](b, `fetch('http://127.0.0.1:1/').catch(() => true)`)
	b.wait(`refused.length >= 2`)
	value[bool](b, `(refused = [], true)`)
	b.mutex.Lock()
	b.wrong, b.abroad = nil, nil
	b.mutex.Unlock()
	if title := value[string](b, `document.title`); title != "Windrow" {
		t.Errorf("the title is %q", title)
	}
}

// TestErrors: what the server refuses, and that it is gone, is said, and the page goes on.
func TestErrors(t *testing.T) {
	at, stop, err := serve()
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	b := open(t, at, 320, 640, "light")
	toast := func(want string) {
		t.Helper()
		b.wait(fmt.Sprintf(`[...document.querySelectorAll('[role=alert] .toast')].some((e) => e.textContent.includes(%q))`, want))
		b.wait(`document.querySelector('#send-label').textContent === 'Send'`)
	}
	b.set("most-tokens", "100000")
	b.say("What is 1 + 1?")
	toast("context")
	b.set("most-tokens", "")
	b.set("schema", `{"type": "string", "not": {}}`)
	b.say("What is 1 + 1?")
	toast("#/not")
	b.set("schema", "{")
	b.say("What is 1 + 1?")
	toast("is no JSON")
	b.set("schema", "")
	b.say("What is 17 + 25?")
	b.answered(1)
	b.set("schema", long)
	b.set("mode", "ar")
	b.say("Count.")
	b.wait(`document.querySelectorAll('.assistant')[1]?.querySelector('.markdown').innerText.length > 40`)
	stop()
	b.wait(`document.querySelector('[role=alert] .toast') && document.querySelector('#send-label').textContent === 'Send'`)
	b.say("What is 17 + 25?")
	toast("does not answer")
}

// TestKey: where the server wants a key the page asks for it, and keeps it no longer than
// the tab.
func TestKey(t *testing.T) {
	at, stop, err := serve("--api-key", "correct horse")
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	b := open(t, at, 1280, 800, "light")
	b.wait(`document.querySelector('#key-box').open`)
	b.press("wrong key", kb.Enter)
	b.wait(`document.querySelector('#key-box').open && document.querySelector('#key-entry').value === ''`)
	b.wait(`document.activeElement.id === 'key-entry'`)
	b.press("correct horse", kb.Enter)
	b.wait(`document.querySelector('#model').textContent === 'tiny-gsm'`)
	b.say(crates)
	b.answered(1)
	if kept := value[string](b, `JSON.stringify(localStorage)`); strings.Contains(kept, "horse") {
		t.Errorf("the key is kept: %s", kept)
	}
}

// TestSequences: the second view lists what runs, and who had rows.
func TestSequences(t *testing.T) {
	b := open(t, address, 1280, 800, "light")
	b.click("#view-all")
	b.wait(`document.querySelector('#all-note').textContent.startsWith('Nobody')`)
	b.set("schema", long)
	b.set("mode", "ar")
	b.say("Count.")
	b.wait(`document.querySelector('#all-rows .own') && document.querySelector('#all-rows').textContent.includes('decode')`)
	b.press(kb.Escape)
	b.wait(`document.querySelectorAll('#all-rows tr').length === 0`)
	b.click("#view-answer")
	b.wait(`document.querySelector('#tape .committed') || document.querySelector('#tape .end')`)
}

// TestFirstScreen: the page is there within a second of the start, and one click shows
// the window at work.
func TestFirstScreen(t *testing.T) {
	began := time.Now()
	at, stop, err := serve()
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	b := open(t, at, 1280, 800, "light")
	b.wait(`document.querySelector('.example') && document.querySelector('#model').textContent === 'tiny-gsm'`)
	t.Logf("%v from the start of the server to the first screen", time.Since(began).Round(time.Millisecond))
	b.click(".example")
	b.wait(`document.querySelectorAll('#tape .column').length > 0`)
	if n := value[int](b, `document.querySelectorAll('.example').length`); n != 0 {
		t.Errorf("%d examples are still there", n)
	}
	b.answered(1)
	loads := value[int](b, `performance.getEntriesByType('resource').length`)
	if loads > 25 {
		t.Errorf("%d files", loads)
	}
	// A second visit fetches the page and what the API says, nothing else.
	b.do(chromedp.Navigate("about:blank"))
	fetched := 0
	ctx := b.ctx
	if err := chromedp.Listen(ctx, func(e any) {
		if e, ok := e.(*network.EventResponseReceived); ok && !e.Response.FromDiskCache && strings.Contains(e.Response.URL, "/ui/") {
			b.mutex.Lock()
			fetched++
			b.mutex.Unlock()
		}
	}); err != nil {
		t.Fatal(err)
	}
	b.do(chromedp.Navigate(at))
	b.wait(`document.querySelector('.message')`)
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.abroad = nil // about:blank
	if fetched > 0 {
		t.Errorf("%d assets were fetched again", fetched)
	}
}

// axe is axe-core's source.
func axe(t *testing.T) string {
	t.Helper()
	source, err := os.ReadFile("third_party/axe-core/axe.min.js")
	if err != nil {
		t.Fatal(err)
	}
	return string(source)
}
