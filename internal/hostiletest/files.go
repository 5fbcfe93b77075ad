// Package hostiletest makes what a hostile tenant can send: the calls of every route, right, large and broken, with
// texts and files that are hard to read. Random walks and attacks draw from it.
package hostiletest

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/annals-project/annals/domain/estimate"
)

// Shapes are the ways in which Files makes a file of each kind hard. The path of a file ends with its kind,
// its shape, a number, and the extension of its format.
func Shapes() []string { return []string{"nested", "repeated", "long-lines", "equal-ids", "tiny-rows"} }

const (
	mail = "From: a@example.com\nTo: b@example.com\nSubject: x\n"
	from = "From a@b Mon May 12 08:15:00 2025\n"
	cue  = "WEBVTT\n\n00:01.000 --> 00:02.000\n"
)

// forms are the formats. Of each shape there is what comes before, what is repeated, and what comes after; a fourth
// part closes each level of a nested file. A %d is the number of the repetition.
var forms = []struct {
	kind   estimate.Kind
	ext    string
	shapes [5]string
}{
	{estimate.Email, ".eml", [5]string{
		mail + "¦Content-Type: message/rfc822\n\n" + mail + "¦\ntea", mail + "\n¦On Monday, Bo wrote:\n> tea %d\nyes\n",
		mail + "\nOn ¦a <b@example.com> %d ¦ wrote:\n", mail + "Content-Type: multipart/mixed; boundary=b\n\n¦--b\n\ntea\n",
		mail + "\n¦\n>\n¦tea",
	}},
	{estimate.Email, ".mbox", [5]string{
		from + mail + "¦Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n¦\ntea", "¦" + from + mail + "\ntea %d\n\n",
		from + mail + "\n¦>> From %d ", "¦" + from + mail + "Message-ID: <1@x>\n\ntea %d\n\n",
		"¦From a 08:15\nTo:\nCc:\n\n.\n\n",
	}},
	{estimate.Chat, ".json", [5]string{
		`¦{"chats":{"list":[¦{"messages":[{"from":"a","text":"b"}]}¦]}}`,
		`{"name":"a","messages":[{}¦,{"from":"a","date":"2025-05-12T10:15:%d","text":"b"}¦]}`,
		`{"name":"a","messages":[{"from":"a","text":["b"¦,"tea %d"¦]}]}`,
		`{"chats":{"list":[{}¦,{"name":"a","messages":[{"from":"a","text":"b %d"}]}¦]}}`, `{"messages":[{}¦,{"from":"","text":"."}¦]}`,
	}},
	{estimate.Chat, ".txt", [5]string{
		"[12/05/2025, 10:15] Ana: ¦<[¦tea¦]>", "¦[12/05/2025, 10:15] Ana: tea %d\n",
		"[12/05/2025, 10:15] Ana: tea¦[1 Jan 2025] %d: ",
		"¦[12/05/2025, 10:15] Ana: tea\n[13/05/2024, 10:15] Bo: x\n", "¦[1.1.25, 1:1]A:.\n",
	}},
	{estimate.Transcript, ".vtt", [5]string{
		cue + "¦<v a>¦tea¦</v>", "WEBVTT\n¦\n00:01.000 --> 00:02.000\n<v Ana>tea %d\n", cue + "¦<v A%d>Ana: &amp; ",
		"WEBVTT\n¦\n00:01.000 --> 00:02.000\ntea\n", cue + "¦%d\n",
	}},
	{estimate.Table, ".csv", [5]string{
		`id,b` + "\n" + `1,"¦""¦tea¦""`, "id,date,b\n¦%d,Monday the first of Octember,x\n", "a,b\n¦%d,", "id,b\n¦7,%d\n", "a\n¦x\n",
	}},
	{estimate.Records, ".json", [5]string{
		`[¦{"a":[¦1¦]}`, `[0¦,{"id":%d,"date":"noon","author":{"name":"a"}}¦]`, `["¦\u00e9 %d ¦"]`, `[0¦,{"id":"a","b":%d}¦]`, "[1¦,1¦]",
	}},
	{estimate.Records, ".jsonl", [5]string{
		`¦{"a":¦1¦}`, "¦{\"id\":%d,\"b\":[1,{\"c\":2}]}\n", `{"a":[1¦,%d¦]}`, "¦{\"id\":\"a~%d\"}\n{\"id\":\"a\",\"b\":1}\n", "¦1\n",
	}},
	{estimate.Code, ".go", [5]string{
		"package a\n¦func(¦a¦)", "¦func a%d() {\n\treturn\n}\n", "func a¦(b%d c) ", "¦func a() {}\n// b\n", "¦a\n",
	}},
	{estimate.Code, ".c", [5]string{"¦{\n¦int a;\n¦}\n", "¦int a%d(int b) {\n}\n", "a b¦c(%d, ", "¦a b(c\n", "¦@\n"}},
	{estimate.Documentation, ".md", [5]string{
		"¦> - ¦tea", "¦## Part %d\n\ntea\n", "# a ¦`**%d** ", "# a\n¦###### b\nc\n", "---\na: b\n¦#\n",
	}},
	{estimate.Documentation, ".adoc", [5]string{
		"= A\n\n¦====\n¦tea\n¦====\n", "= A\n¦\n== Part %d\n\ntea\n", "= ¦a%d = ", "= A\n¦\n== b\nc\n", "¦== a\n",
	}},
	{estimate.Documentation, ".html", [5]string{
		"<html>¦<nav><pre>¦tea¦</pre></nav>", "¦<h2>Part %d</h2>tea", "<meta a¦ b%d¦>tea", "<h1>a</h1>¦<h6>b</h6>c", "¦<p>.<p>",
	}},
	{estimate.Notes, ".txt", [5]string{"¦(¦tea¦)", "¦tea %d\n", "¦\u0301", "¦\n\n", "¦.\n"}},
}

// Files returns a file of at most about size bytes of each format and shape; the same seed gives the same
// files. Some paths have 970 characters of four bytes, and some files share a path.
func Files(seed uint64, size int) (files []estimate.File) {
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // it repeats by its seed
	for _, f := range forms {
		for i, shape := range f.shapes {
			path := fmt.Sprintf("%s %s %d%s", f.kind, Shapes()[i], random.IntN(2), f.ext)
			if random.IntN(5) == 0 {
				path = strings.Repeat("\U00010348", 960) + path
			}
			content := fill(strings.Split(shape+"¦¦¦", "¦"), int(float64(size)*(1+random.Float64())/2))
			files = append(files, estimate.File{Path: path, Content: content, Kind: f.kind})
		}
	}
	return files
}

// fill repeats the second part until a file is long enough, and the fourth as often.
func fill(parts []string, length int) string {
	var b strings.Builder
	b.WriteString(parts[0])
	n := 0
	for ; n == 0 || b.Len()+n*len(parts[3]) < length; n++ {
		b.WriteString(strings.ReplaceAll(parts[1], "%d", fmt.Sprint(n)))
	}
	return b.String() + parts[2] + strings.Repeat(parts[3], n)
}
