package browser

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
)

// required is the value of ANNALS_TEST_BROWSER with which a browser or axe that is missing fails the tests.
const required = "required"

// chromium is the browser of this test process. All windows are of one process, so that it starts once.
var chromium struct {
	sync.Once
	ctx    context.Context
	cancel context.CancelFunc
	// missing names what is not installed, "" if all is.
	missing string
	axe     string
}

// axeFile is where make browser installs axe-core.
var axeFile = filepath.Join("..", "..", "..", "bin", "browser", "node_modules", "axe-core", "axe.min.js")

// program finds the browser, "" if there is none.
func program() string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// startChromium starts the browser once. Its data is removed when the tests end.
func startChromium() {
	path := program()
	axe, err := os.ReadFile(axeFile)
	switch {
	case path == "":
		chromium.missing = "no Chromium is installed here"
		return
	case err != nil:
		chromium.missing = "axe-core is not installed here (make browser does it): " + err.Error()
		return
	}
	chromium.axe = string(axe)
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("hide-scrollbars", true), chromedp.Flag("lang", "en-US"),
	)
	ctx, endAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, endBrowser := chromedp.NewContext(ctx)
	chromium.ctx, chromium.cancel = ctx, func() { endBrowser(); endAllocator() }
	if err := chromedp.Do(ctx); err != nil {
		chromium.missing = "Chromium does not start: " + err.Error()
	}
}

// needBrowser skips a test where there is no browser or no axe, unless they are required.
func needBrowser(t *testing.T) {
	t.Helper()
	chromium.Do(startChromium)
	switch {
	case chromium.missing == "":
	case os.Getenv("ANNALS_TEST_BROWSER") == required:
		t.Fatal(chromium.missing)
	default:
		t.Skip("the console is not walked with a browser: ", chromium.missing)
	}
}

// stopChromium ends the browser, if it was started.
func stopChromium() {
	if chromium.cancel != nil {
		chromium.cancel()
	}
}
