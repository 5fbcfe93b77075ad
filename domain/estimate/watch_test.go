package estimate_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/annals-project/annals/domain/estimate"
	"github.com/annals-project/annals/internal/hostilefiles"
)

// checked is a context that counts how often it is checked. It ends with the check that is the last.
type checked struct {
	context.Context //nolint:containedctx // it is a context
	checks, last    int
}

func (c *checked) Err() error {
	if c.checks++; c.last > 0 && c.checks >= c.last {
		return context.Canceled
	}
	return nil
}

// work is what a cut takes.
type work struct {
	checks, points int
	allocated      int64
	skipped        bool
}

func cutWithin(t *testing.T, f estimate.File, last int) (work, error) {
	t.Helper()
	ctx := &checked{Context: t.Context(), last: last}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	w := work{}
	_, err := estimate.Cut(ctx, f, time.UTC, func(estimate.Point) error {
		if last > 0 && ctx.checks >= last {
			t.Errorf("%s: a data point after the end of the context", f.Path)
		}
		w.points++
		return nil
	})
	runtime.ReadMemStats(&after)
	w.checks, w.allocated = ctx.checks, int64(after.TotalAlloc-before.TotalAlloc)
	if _, w.skipped = errors.AsType[*estimate.Skip](err); w.skipped {
		err = nil
	}
	return w, err
}

// ordinary returns usual files of about size bytes, which end as lines do.
func ordinary(size int) (files []estimate.File) {
	for name, content := range longest() {
		if !strings.HasSuffix(name, ".json") {
			files = append(files, estimate.File{Path: name, Content: content[:size]})
		}
	}
	return files
}

// shortPaths leaves out files with long paths, which are made part of each data point: that takes time.
func shortPaths(files []estimate.File) []estimate.File {
	return slices.DeleteFunc(files, func(f estimate.File) bool { return len(f.Path) > 100 })
}

// Each kind of file is read with a check of the context at least once per 64 KiB, and ends with the check at which
// the context has ended, wherever in the file that is.
func TestCut_EndsWithContext(t *testing.T) {
	const size = 1 << 17
	for _, f := range append(shortPaths(hostilefiles.Make(1, size)), ordinary(size)...) {
		all, err := cutWithin(t, f, 0)
		if err != nil {
			t.Fatal(err)
		}
		// A mail ends with its last part that is read, and an HTML page has no attributes of a long tag.
		read := f.Kind != estimate.Email && !strings.HasSuffix(f.Path, ".html")
		if least := len(f.Content) >> 16; read && !all.skipped && all.checks < least {
			t.Errorf("%s: %d checks: want at least %d", f.Path, all.checks, least)
		}
		for _, last := range []int{1, (all.checks + 1) / 2, all.checks} {
			w, err := cutWithin(t, f, last)
			if !errors.Is(err, context.Canceled) || w.checks != last {
				t.Errorf("%s: ended by check %d of %d: %v after %d checks", f.Path, last, all.checks, err, w.checks)
			}
		}
	}
}

// Twice the file takes twice the work and memory: the checks count what is read and made.
func TestCut_WorkIsLinear(t *testing.T) {
	const size = 1 << 16
	once := shortPaths(hostilefiles.Make(1, size))
	twice := shortPaths(hostilefiles.Make(1, 2*size))
	for i, f := range once {
		if len(twice[i].Content) < len(f.Content)*3/2 {
			t.Fatalf("%s: the second file is not twice as long", f.Path)
		}
		small, err := cutWithin(t, f, 0)
		big, bigErr := cutWithin(t, twice[i], 0)
		if err := errors.Join(err, bigErr); err != nil {
			t.Fatal(err)
		}
		if big.checks > small.checks*5/2+4 || big.allocated > small.allocated*5/2+1<<20 {
			t.Errorf("%s: %d bytes take %+v, %d take %+v", f.Path, len(f.Content), small, len(twice[i].Content), big)
		}
	}
}

// What is in use while a file is cut is a small multiple of the file.
func TestCut_MemoryInUse(t *testing.T) {
	if testing.Short() {
		t.Skip("the race detector takes memory of its own")
	}
	const size = 1 << 17
	for _, f := range append(shortPaths(hostilefiles.Make(2, size)), hostileFiles(size)...) {
		all, err := cutWithin(t, f, 0)
		if err != nil {
			t.Fatal(err)
		}
		every, points := max(1, all.checks/2), int64(0)
		var before, now runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		ctx, most := &checked{Context: t.Context()}, uint64(0)
		_, err = estimate.Cut(sampled{ctx, func() {
			if ctx.checks%every == every-1 {
				runtime.GC()
				runtime.ReadMemStats(&now)
				most = max(most, now.HeapAlloc)
			}
		}}, f, time.UTC, func(estimate.Point) error {
			points++
			return nil
		})
		if _, skipped := errors.AsType[*estimate.Skip](err); err != nil && !skipped {
			t.Fatal(err)
		}
		runtime.KeepAlive(f)
		used := int64(most) - int64(before.HeapAlloc)
		// The names of all data points are in use, too.
		if used > 10*int64(len(f.Content))+64*points+1<<19 {
			t.Errorf("%.60s: %d bytes take %d", f.Path, len(f.Content), used)
		}
	}
}

// sampled calls sample at each check.
type sampled struct {
	*checked
	sample func()
}

func (s sampled) Err() error {
	s.sample()
	return s.checked.Err()
}

// Text that is read level by level has a bound; what is deeper is skipped or left out, on both sides of the bound.
func TestCut_Depth(t *testing.T) {
	nest := func(open, inside, closing string, n int) string {
		return strings.Repeat(open, n) + inside + strings.Repeat(closing, n)
	}
	const half = estimate.MaxJSONDepth / 2
	const third = (estimate.MaxJSONDepth - 3) / 3
	chat := `{"messages":[{"from":"a","text":"b"}]}`
	mail := "From: a@example.com\nTo: b@example.com\n"
	const attached = "Content-Type: message/rfc822\n\n"
	for name, c := range map[string]struct {
		kind    estimate.Kind
		content string
		want    string
		skipped string
	}{
		"records":             {estimate.Records, nest(`{"a":[`, "1", "]}", half), "1", ""},
		"deeper records":      {estimate.Records, "[" + nest(`{"a":[`, "1", "]}", half) + "]", "", "more than 1000 levels"},
		"lines":               {estimate.Records, nest("[", "1", "]", estimate.MaxJSONDepth), "1", ""},
		"deeper lines":        {estimate.Records, "{}\n" + nest("[", "1", "]", estimate.MaxJSONDepth+1), "", "more than 1000 levels"},
		"brackets in a text":  {estimate.Records, `["` + strings.Repeat(`[\"{`, 3*estimate.MaxJSONDepth) + `"]`, `["{["{`, ""},
		"chats":               {estimate.Chat, nest(`{"chats":{"list":[`, chat, "]}}", third), "a: b", ""},
		"deeper chats":        {estimate.Chat, nest(`{"chats":{"list":[`, chat, "]}}", third+1), "", "more than 1000 levels"},
		"chats without end":   {estimate.Chat, strings.Repeat(`{"chats":{"list":[`, 930_000), "", "more than 1000 levels"},
		"attachments":         {estimate.Email, strings.Repeat(mail+attached, estimate.MaxNesting) + mail + "\ntea", "tea", ""},
		"deeper attachments":  {estimate.Email, strings.Repeat(mail+attached, estimate.MaxNesting+1) + mail + "\ntea", "From: a@example.com", ""},
		"multiparts":          {estimate.Email, multiparts(mail, estimate.MaxNesting), "tea", ""},
		"deeper multiparts":   {estimate.Email, multiparts(mail, estimate.MaxNesting+1), "", "nothing to remember"},
		"elements":            {estimate.Documentation, "<html>" + nest("<div><ul><li>", "tea", "</li></ul></div>", 50_000), "tea", ""},
		"hidden elements":     {estimate.Documentation, "<html>" + nest("<nav>", "x", "</nav>", 50_000) + "tea", "tea", ""},
		"quotations of mail":  {estimate.Email, mail + "\n" + strings.Repeat(">", 50_000) + "x\ntea", "tea", ""},
		"quotations":          {estimate.Documentation, strings.Repeat("> ", 50_000) + "tea", "tea", ""},
		"lists":               {estimate.Documentation, strings.Repeat("- ", 50_000) + "tea", "tea", ""},
		"blocks":              {estimate.Documentation, "= A\n" + nest("====\n----\n", "tea\n", "----\n====\n", 50_000), "tea", ""},
		"front matter":        {estimate.Documentation, "---\n" + strings.Repeat("a:\n ", 50_000) + "\n---\ntea", "tea", ""},
		"braces":              {estimate.Code, nest("{\n", "tea", "}\n", 50_000), "tea", ""},
		"speakers":            {estimate.Transcript, "WEBVTT\n\n00:01.000 --> 00:02.000\n" + nest("<v a>", "tea", "</v>", 50_000), "tea", ""},
		"brackets of a chat":  {estimate.Chat, "[12/05/2025, 10:15] Ana: " + nest("[<", "tea", ">]", 50_000), "tea", ""},
		"quotes of a table":   {estimate.Table, "a\n\"" + nest(`""`, "tea", `""`, 50_000) + "\"\n", "tea", ""},
		"brackets of a notes": {estimate.Notes, nest("(", "tea", ")", 50_000), "tea", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var got strings.Builder
			_, err := estimate.Cut(t.Context(), estimate.File{Path: "a", Content: c.content, Kind: c.kind}, time.UTC,
				func(p estimate.Point) error {
					got.WriteString(p.Content)
					return nil
				})
			if c.skipped == "" && (err != nil || !strings.Contains(got.String(), c.want)) {
				t.Errorf("%.300s, %v", got.String(), err)
			}
			if strings.HasPrefix(name, "deeper") && strings.Contains(got.String(), "tea") {
				t.Error("what is too deep is read")
			}
			if c.skipped != "" && (err == nil || !strings.Contains(err.Error(), c.skipped)) {
				t.Errorf("%.300s, %v: want %q", got.String(), err, c.skipped)
			}
		})
	}
}

// multiparts is a mail whose text is some levels deep.
func multiparts(mail string, levels int) string {
	var b strings.Builder
	b.WriteString(mail)
	for n := range levels {
		_, _ = fmt.Fprintf(&b, "Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n", n, n)
	}
	return b.String() + "\ntea"
}
