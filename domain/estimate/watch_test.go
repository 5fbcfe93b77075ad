package estimate_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/annals-project/annals/domain/estimate"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/internal/hostiletest"
	"github.com/annals-project/annals/internal/mailboxtest"
	"github.com/annals-project/annals/internal/runtest"
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
	for _, f := range append(shortPaths(hostiletest.Files(1, size)), ordinary(size)...) {
		all, err := cutWithin(t, f, 0)
		runtest.Must(t, err)
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
	once := shortPaths(hostiletest.Files(1, size))
	twice := shortPaths(hostiletest.Files(1, 2*size))
	for i, f := range once {
		if len(twice[i].Content) < len(f.Content)*3/2 {
			t.Fatalf("%s: the second file is not twice as long", f.Path)
		}
		small, err := cutWithin(t, f, 0)
		big, bigErr := cutWithin(t, twice[i], 0)
		runtest.Must(t, errors.Join(err, bigErr))
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
	for _, f := range append(shortPaths(hostiletest.Files(2, size)), hostileFiles(size)...) {
		all, err := cutWithin(t, f, 0)
		runtest.Must(t, err)
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

// fill repeats a text that depends on a number until it has the size of the longest file.
func fill(begin string, next func(n int) string) string {
	var b strings.Builder
	b.Grow(limit.EstimateFileBytes)
	b.WriteString(begin)
	for n := 0; ; n++ {
		part := next(n)
		if b.Len()+len(part) > limit.EstimateFileBytes-1 {
			return b.String()
		}
		b.WriteString(part)
	}
}

func at(n int) time.Time { return time.Date(2024, 1, 1, 0, 0, 37*n, 0, time.UTC) }

// longest returns a usual file of 16 MiB of each kind and format.
func longest() map[string]string {
	const words = "The kettle sings while Ana waters the garden and Bo reads the news of the day in the kitchen. "
	return map[string]string{
		"mail.mbox": fill("", func(n int) string {
			return fmt.Sprintf("From a@example.com %s\nFrom: Ana <a%d@example.com>\nTo: b@example.com\nSubject: Tea %d\n"+
				"Date: %s\nMessage-ID: <%d@x>\nMIME-Version: 1.0\nContent-Type: multipart/alternative; boundary=b\n\n--b\n"+
				"Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: quoted-printable\n\n%s=\n%s\n\n"+
				"On Monday, Bo <b@example.com> wrote:\n> %s\n--b\nContent-Type: text/html\n\n<p>%s</p>\n--b--\n\n",
				at(n).Format(time.ANSIC), n%50, n, at(n).Format(time.RFC1123Z), n, words, words, words, words)
		}),
		"chat.txt": fill("", func(n int) string {
			return fmt.Sprintf("[%s] %s: %s\n", at(n).Format("02/01/2006, 15:04:05"), []string{"Ana", "Bo"}[n%2], words[:n%90+5])
		}),
		"slack/general.json": fill("[", func(n int) string {
			return fmt.Sprintf("%s{\"type\":\"message\",\"user\":\"U%d\",\"text\":\"%s &amp; <@U1>\",\"ts\":\"%d.000100\"}",
				strings.Repeat(",", min(n, 1)), n%9, words[:n%90+5], at(n).Unix())
		}) + "]",
		"call.vtt": fill("WEBVTT\n\n", func(n int) string {
			return fmt.Sprintf("%02d:%02d:%02d.000 --> 99:00:00.000\n<v %s>%s\n\n", n/3600%100, n/60%60, n%60,
				[]string{"Ana", "Bo"}[n/3%2], words[:n%90+5])
		}),
		"talk.txt": fill("", func(n int) string { return []string{"Ana", "Bo"}[n%2] + ": " + words[:n%90+5] + "\n" }),
		"table.csv": fill("id,date,author,title,note\n", func(n int) string {
			return fmt.Sprintf("%d,%s,Ana,Tea %d,\"%s\"\n", n, at(n).Format("02/01/2006 15:04"), n, words[:n%90+5])
		}),
		"records.jsonl": fill("", func(n int) string {
			return fmt.Sprintf("{\"id\":%d,\"time\":%q,\"level\":\"info\",\"message\":%q,\"tags\":[\"a\",\"b\"],\"host\":{\"name\":\"db\"}}\n",
				n, at(n).Format(time.RFC3339), words[:n%90+5])
		}),
		"records.json": fill("[", func(n int) string {
			return fmt.Sprintf("%s{\"id\":%d,\"time\":%q,\"text\":%q}", strings.Repeat(",", min(n, 1)), n, at(n).Format(time.RFC3339), words[:n%90+5])
		}) + "]",
		"code.go": fill("package a\n", func(n int) string {
			return fmt.Sprintf("\n// F%d sings.\nfunc F%d(a int) int {\n\tfor a > 0 {\n\t\ta--\n\t}\n\treturn a\n}\n", n, n)
		}),
		"code.cpp": fill("", func(n int) string {
			return fmt.Sprintf("static std::vector<int> f%d(const std::string& name, int b) {\n  return {b};\n}\n\n", n)
		}),
		"guide.md": fill("", func(n int) string { return fmt.Sprintf("## Part %d\n\n%s\n%s\n\n", n, words, words) }),
		"page.html": fill("<html><body>", func(n int) string {
			return fmt.Sprintf("<h2>Part <b>%d</b></h2><p class=\"a\">%s &amp; %s</p>\n", n, words, words)
		}),
		"manual.adoc": fill("= Manual\n\n", func(n int) string { return fmt.Sprintf("== Part %d\n\n%s\n%s\n\n", n, words, words) }),
		"notes.txt":   fill("", func(int) string { return words + "\n\n" }),
	}
}

// processorTime returns the time that the process has used, which other processes do not change.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	runtest.Must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// BenchmarkPlan_LongestFile cuts a file of 16 MiB of each format.
func BenchmarkPlan_LongestFile(b *testing.B) {
	for name, content := range longest() {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(content)))
			b.ReportAllocs()
			points, before := 0, processorTime(b)
			for b.Loop() {
				p := estimate.NewPlan(time.UTC, limit.EstimateRows)
				runtest.Must(b, p.AddFile(b.Context(), estimate.File{Path: name, Content: content}))
				e, err := p.Estimate(b.Context(), estimate.Room{})
				runtest.Must(b, err)
				if e.Files[0].Skipped != "" {
					b.Fatal(e.Files[0].Skipped)
				}
				points = e.Points
			}
			b.ReportMetric(float64(points), "points")
			b.ReportMetric((processorTime(b)-before).Seconds()*1000/float64(b.N), "cpu-ms/op")
		})
	}
}

// BenchmarkPlan_ManyFiles cuts 10,000 files of 1 KB.
func BenchmarkPlan_ManyFiles(b *testing.B) {
	all := longest()
	var files []estimate.File
	for len(files) < limit.EstimateFiles {
		for name, content := range all {
			files = append(files, estimate.File{Path: fmt.Sprint(len(files), name), Content: content[:1024]})
		}
	}
	b.ReportAllocs()
	before := processorTime(b)
	for b.Loop() {
		p := estimate.NewPlan(time.UTC, limit.EstimateRows)
		for _, f := range files[:limit.EstimateFiles] {
			runtest.Must(b, p.AddFile(b.Context(), f))
		}
		if _, err := p.Estimate(b.Context(), estimate.Room{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric((processorTime(b)-before).Seconds()*1000/float64(b.N), "cpu-ms/op")
}

// BenchmarkCut_Mailbox decodes and cuts a mailbox as people have it, and reports the messages a second.
func BenchmarkCut_Mailbox(b *testing.B) {
	const messages = 2000
	var box strings.Builder
	for n := range messages {
		box.WriteString(mailboxtest.Message(n))
	}
	b.SetBytes(int64(box.Len()))
	for b.Loop() {
		f, err := estimate.Decoded(b.Context(), "a.mbox", "", []byte(box.String()))
		runtest.Must(b, err)
		points := 0
		if _, err := estimate.Cut(b.Context(), f, time.UTC, func(estimate.Point) error { points++; return nil }); err != nil {
			b.Fatal(err)
		}
		if points != messages {
			b.Fatalf("%d messages become %d data points", messages, points)
		}
	}
	b.ReportMetric(float64(messages)*float64(b.N)/b.Elapsed().Seconds(), "messages/s")
}
