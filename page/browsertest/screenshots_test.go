//go:build screenshots

package browsertest

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

var (
	shots    = flag.String("screenshots", "", "write the screenshots of the docs to this `folder`")
	allShots = flag.String("all-screenshots", "", "write screenshots at three sizes, in both schemes, to this `folder`")
)

func (b *tab) shoot(path string) {
	b.t.Helper()
	b.do(chromedp.Sleep(600 * time.Millisecond)) // what moves has come to rest
	format, quality := page.CaptureScreenshotFormatPng, int64(80)
	if filepath.Ext(path) == ".webp" {
		format = page.CaptureScreenshotFormatWebp
	}
	picture := call(b, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: format, Quality: &quality}).Data
	if err := os.WriteFile(path, picture, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// TestAllScreenshots takes pictures for whoever changes the page to look at.
func TestAllScreenshots(t *testing.T) {
	if *allShots == "" {
		t.Skip("without -all-screenshots")
	}
	for _, size := range [][2]int64{{320, 640}, {1280, 800}, {3840, 2160}, {640, 400}} {
		for _, scheme := range []string{"light", "dark"} {
			b := open(t, address, size[0], size[1], scheme)
			b.wait(`document.querySelector('#model').textContent === 'tiny-gsm'`)
			name := func(moment string) string {
				return filepath.Join(*allShots, fmt.Sprintf("%d-%s-%s.png", size[0], scheme, moment))
			}
			b.shoot(name("1-welcome"))
			b.click(".example")
			b.answered(1)
			b.click("#first")
			b.click("#forward")
			b.shoot(name("2-during"))
			b.click("#last")
			b.shoot(name("3-after"))
			b.say(savings)
			b.answered(2)
			b.click("#first")
			for range 6 {
				b.click("#forward")
			}
			b.shoot(name("4-struck"))
			b.click("#open-settings")
			b.shoot(name("5-settings"))
			b.press(kb.Escape)
			b.click("#view-all")
			value[bool](b, `(() => { for (const mode of ['ar', 'verified', 'wedlm']) fetch('v1/chat/completions', {method: 'POST', body: JSON.stringify({mode, max_tokens: 2500, ignore_eos: true, temperature: 1, messages: [{role: 'user', content: 'Count.'}]})}); return true; })()`)
			b.wait(`document.querySelectorAll('#all-rows tr').length === 3`)
			b.shoot(name("6-sequences"))
		}
	}
}

// TestScreenshots makes the pictures of the docs (make screenshots).
func TestScreenshots(t *testing.T) {
	if *shots == "" {
		t.Skip("without -screenshots")
	}
	for _, picture := range []struct {
		name, scheme, question string
		pass                   int
	}{
		{"page-light.webp", "light", savings, 11},
		{"page-dark.webp", "dark", crates, 3},
	} {
		b := open(t, address, 1280, 800, picture.scheme)
		b.wait(`document.querySelector('.example')`)
		b.set("window", "16")
		b.say(picture.question)
		b.answered(1)
		b.click("#first")
		for range picture.pass - 1 {
			b.click("#forward")
		}
		value[bool](b, `(document.querySelector('#message').focus(), true)`)
		b.shoot(filepath.Join(*shots, picture.name))
	}
}
