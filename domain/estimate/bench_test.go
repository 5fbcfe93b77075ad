package estimate_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/annals-project/annals/domain/estimate"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/internal/mailboxes"
)

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
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
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
				if err := p.AddFile(b.Context(), estimate.File{Path: name, Content: content}); err != nil {
					b.Fatal(err)
				}
				e, err := p.Estimate(b.Context(), estimate.Room{})
				if err != nil {
					b.Fatal(err)
				}
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
			if err := p.AddFile(b.Context(), f); err != nil {
				b.Fatal(err)
			}
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
		box.WriteString(mailboxes.Message(n))
	}
	b.SetBytes(int64(box.Len()))
	for b.Loop() {
		f, err := estimate.Decoded(b.Context(), "a.mbox", "", []byte(box.String()))
		if err != nil {
			b.Fatal(err)
		}
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
