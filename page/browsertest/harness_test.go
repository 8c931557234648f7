package browsertest

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// What all tests share: the binary, one server without keys, one browser.
var (
	binary  string
	address string
	browser context.Context
)

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	path := findBrowser()
	if path == "" {
		fmt.Println("left out: the page in a browser: needs chromium or google-chrome")
		if os.Getenv("CI") != "" {
			return 1
		}
		return 0
	}
	folder, err := os.MkdirTemp("", "windrow-page-")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer os.RemoveAll(folder)
	if binary = os.Getenv("WINDROW_BINARY"); binary == "" {
		binary = filepath.Join(folder, "windrow")
		build := exec.Command("go", "build", "-buildvcs=false", "-o", binary, "./cmd/windrow")
		build.Dir = filepath.Join("..", "..")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Printf("build: %v\n%s", err, out)
			return 1
		}
	}
	var stop func()
	if address, stop, err = serve(); err != nil {
		fmt.Println(err)
		return 1
	}
	defer stop()
	options := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(path), chromedp.UserDataDir(filepath.Join(folder, "profile")), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.Headless, chromedp.NoFirstRun,
		chromedp.WSURLReadTimeout(2 * time.Minute), // a busy machine starts it slowly
	}
	for _, flag := range []string{"disable-quic", "disable-background-networking", "disable-component-update", "disable-sync", "disable-default-apps", "hide-scrollbars"} {
		options = append(options, chromedp.Flag(flag, true))
	}
	allocator, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	defer cancel()
	var end func()
	browser, end = chromedp.NewContext(allocator)
	defer end()
	if _, err := chromedp.Run(browser, chromedp.Title()); err != nil {
		fmt.Println("start", path+":", err)
		return 1
	}
	return m.Run()
}

func findBrowser() string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// serve starts the binary, and returns the address of its page.
func serve(args ...string) (at string, stop func(), err error) {
	c := exec.Command(binary, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
	stderr, err := c.StderrPipe()
	if err != nil {
		return "", nil, err
	}
	if err := c.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		c.Process.Kill()
		c.Wait()
	}
	found := make(chan string, 1)
	go func() {
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			if at, ok := strings.CutPrefix(lines.Text(), "windrow: the page: "); ok {
				found <- at
			}
		}
	}()
	select {
	case at = <-found:
		return at, stop, nil
	case <-time.After(2 * time.Minute):
		stop()
		return "", nil, fmt.Errorf("%s did not say where its page is", binary)
	}
}

// tab is a page in a browser that knows nothing of others.
type tab struct {
	t      *testing.T
	ctx    context.Context
	mutex  sync.Mutex
	wrong  []string // errors of scripts, refused by the policy
	abroad []string // requests to anywhere but the server
}

// open opens an address; size in CSS pixels, scheme light or dark.
func open(t *testing.T, at string, width, height int64, scheme string) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	b := &tab{t: t, ctx: ctx}
	t.Cleanup(func() {
		if refused := value[[]string](b, "refused"); len(refused) > 0 {
			t.Errorf("the policy refused %q", refused)
		}
		b.mutex.Lock()
		for _, s := range b.wrong {
			t.Errorf("the page: %s", s)
		}
		for _, s := range b.abroad {
			t.Errorf("a request to %s", s)
		}
		b.mutex.Unlock()
		cancel()
	})
	err := chromedp.Listen(ctx, func(e any) {
		b.mutex.Lock()
		defer b.mutex.Unlock()
		switch e := e.(type) {
		case *runtime.EventExceptionThrown:
			b.wrong = append(b.wrong, fmt.Sprint(e.ExceptionDetails.Text, " ", e.ExceptionDetails.Exception))
		case *log.EventEntryAdded:
			// Refusals by the policy are entries of the source security. The browser
			// notes replies that are errors, too: tests cause some.
			if e.Entry.Level == log.EntryLevelError && e.Entry.Source != log.EntrySourceNetwork {
				b.wrong = append(b.wrong, e.Entry.Text)
			}
		case *network.EventRequestWillBeSent:
			if u := e.Request.URL; !strings.HasPrefix(u, at) && !strings.HasPrefix(u, "blob:"+at) {
				b.abroad = append(b.abroad, u)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	call(b, network.Enable, network.EnableParams{})
	call(b, log.Enable, cdp.Empty{})
	call(b, runtime.Enable, cdp.Empty{})
	call(b, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{
		Source: `window.refused = []; addEventListener('securitypolicyviolation', (e) => refused.push(e.violatedDirective + ' ' + e.blockedURI));`,
	})
	b.size(width, height, scheme)
	b.do(chromedp.Navigate(at))
	b.wait(`document.querySelector('.welcome, .message, dialog[open]')`)
	return b
}

func call[P, R any](b *tab, c cdp.Command[P, R], params P) R {
	b.t.Helper()
	r, err := chromedp.Call(b.ctx, c, params)
	if err != nil {
		b.t.Fatalf("%s: %v", c.Method, err)
	}
	return r
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 2*time.Minute)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// size makes the screen so large, in a colour scheme.
func (b *tab) size(width, height int64, scheme string) {
	b.t.Helper()
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1})
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
}

// value evaluates an expression.
func value[T any](b *tab, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 2*time.Minute)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%.200s: %v", expression, err)
	}
	return v
}

// wait waits until an expression is true.
func (b *tab) wait(expression string) {
	b.t.Helper()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if value[bool](b, "!!("+expression+")") {
			return
		}
	}
	b.t.Fatalf("never true: %s; the page says %.600q", expression, value[string](b, "document.body.innerText"))
}

// click clicks what is at a selector; press presses keys, one after the other.
func (b *tab) click(selector string) {
	b.t.Helper()
	b.do(chromedp.Click(chromedp.CSS(selector)))
}

func (b *tab) press(keys ...string) {
	b.t.Helper()
	for _, k := range keys {
		b.do(chromedp.KeyEvent(k))
	}
}

// say types a message and sends it.
func (b *tab) say(text string) {
	b.t.Helper()
	b.do(chromedp.Focus(chromedp.CSS("#message")))
	b.press(text, kb.Enter)
}

// answered waits for the end of answer n, from 1, and returns its text.
func (b *tab) answered(n int) string {
	b.t.Helper()
	b.wait(fmt.Sprintf(`document.querySelectorAll('.assistant:not(.busy) .foot .note').length >= %d && document.querySelector('#send-label').textContent === 'Send'`, n))
	return value[string](b, fmt.Sprintf(`document.querySelectorAll('.assistant .markdown')[%d].innerText`, n-1))
}

// set gives a field a value, as typing does.
func (b *tab) set(id, v string) {
	b.t.Helper()
	value[bool](b, fmt.Sprintf(`(() => { const f = document.getElementById(%q); f.value = %q; return f.dispatchEvent(new Event('input', {bubbles: true})); })()`, id, v))
}

const crates = "Maya has 4 crates with 12 apples each. She gives 5 apples to each of 6 friends. How many apples are left?"

// savings is a question at which drafts are struck.
const savings = "Paul saves $25 a week. How much does he have after 8 weeks if he started with $40?"
