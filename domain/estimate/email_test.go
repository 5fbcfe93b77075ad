package estimate_test

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/encoding/ianaindex"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/korean"
	"golang.org/x/text/encoding/simplifiedchinese"

	"github.com/annals-project/annals/domain/estimate"
	"github.com/annals-project/annals/internal/runtest"
)

// mailCase is a mail with what must be kept and left out of it.
type mailCase struct {
	head, body string
	has, lacks []string
	quoted     bool
}

const mailHead = "From: Tove Lund <tove@example.org>\nTo: ivo@example.net\nDate: Thu, 5 Jun 2025 07:30:00 +0000\nMessage-ID: <m@example.org>\n"

const (
	reply   = "Subject: Re: Boat shed\nIn-Reply-To: <0@example.net>\n"
	fresh   = "Subject: Boat shed\n"
	forward = "Subject: Fwd: Boat shed\nIn-Reply-To: <0@example.net>\n"
	block   = "From: Ivo Marsh <ivo@example.net>\nSent: Wednesday, 4 June 2025 18:20\nTo: Tove Lund <tove@example.org>\nSubject: Boat shed\n\nThe lock is rusty.\n"
)

// Of a reply only what its thread has elsewhere is left out, in the forms of mail programs; of any other message
// nothing is.
func TestCut_MailQuotes(t *testing.T) {
	old := []string{"The lock is rusty."}
	quote := "\n> The lock is rusty.\n"
	cases := map[string]mailCase{
		"forward of Outlook":           {head: forward, body: "Please see.\n\n" + strings.Repeat("_", 32) + "\n" + block, has: []string{"Please see.", "The lock is rusty.", "Ivo Marsh"}},
		"forward of Gmail":             {head: forward, body: "---------- Forwarded message ---------\n" + block, has: []string{"The lock is rusty.", "Ivo Marsh"}},
		"forward of Apple":             {head: forward, body: "Begin forwarded message:\n\n" + block, has: old},
		"forward of Thunderbird":       {head: "Subject: Fwd: Boat shed\n", body: "-------- Forwarded Message --------\n" + block, has: old},
		"forward in German":            {head: "Subject: WG: Bootshaus\nReferences: <0@example.net>\n", body: "Von: Ivo <ivo@example.net>\nGesendet: Mittwoch, 4. Juni 2025 18:20\nAn: Tove\nBetreff: Bootshaus\n\nThe lock is rusty.", has: old},
		"forward in French":            {head: "Subject: TR: Hangar\nIn-Reply-To: <0@example.net>\n", body: "De : Ivo <ivo@example.net>\nEnvoyé : mercredi 4 juin 2025 18:20\nÀ : Tove\nObjet : Hangar\n\nThe lock is rusty.", has: old},
		"forward with marks":           {head: forward, body: "On Wed, Jun 4, 2025 at 6:20 PM Ivo <ivo@example.net> wrote:\n" + quote, has: old},
		"forward within a reply":       {head: reply, body: "As promised.\n\n---------- Forwarded message ---------\n" + block, has: []string{"As promised.", "The lock is rusty."}},
		"forward of Zoho in a reply":   {head: reply, body: "See.\n\n============ Forwarded message ============\n" + block, has: old},
		"forward of Apple in a reply":  {head: reply, body: "Vidarebefordrat brev:\n\n" + block, has: old},
		"forward by a mark":            {head: "Subject: Boat shed (fwd)\nIn-Reply-To: <0@example.net>\n", body: "See.\n\n" + block, has: old},
		"forward in brackets":          {head: "Subject: [Fwd: Boat shed]\nIn-Reply-To: <0@example.net>\n", body: "See.\n\n" + block, has: old},
		"forward after a filter":       {head: "Subject: EXT: FW: Boat shed\nIn-Reply-To: <0@example.net>\n", body: "See.\n\n" + block, has: old},
		"a journey with a date":        {head: reply, body: "The plan:\n\nVon: Hamburg\nDatum: 4.6.2025 18:20\nAn: Bremen\nThe lock is rusty.", has: old},
		"first message with fields":    {head: fresh, body: "Log:\n\n" + block, has: old},
		"first message with marks":     {head: fresh, body: "Type this:\n> gate --set 12\nThen wait.", has: []string{"> gate --set 12", "Then wait."}},
		"first message with a verb":    {head: fresh, body: "On the shed somebody wrote:\nkeep out\nThe paint is fresh.", has: []string{"keep out", "The paint is fresh."}},
		"marks without a writer":       {head: reply, body: "Type this:\n> gate --set 12\nThen wait.", has: []string{"> gate --set 12", "Then wait."}},
		"a verb without a date":        {head: reply, body: "Am Tor steht, was Ivo schrieb:\nDas Schloss klemmt.", has: []string{"Das Schloss klemmt."}},
		"fields without a date":        {head: reply, body: "Sender is empty.\nFrom: the pier\nTo: the shed\nSubject: a walk", has: []string{"a walk"}},
		"half a block":                 {head: reply, body: "Noted.\n-----Original Message-----\nFrom: Ivo\nThe lock is rusty.", has: old},
		"nothing else":                 {head: reply, body: "On Wed, Jun 4, 2025 at 6:20 PM Ivo <ivo@example.net> wrote:\n" + quote, has: old},
		"reply of Gmail":               {head: reply, body: "Yes.\n\nOn Wed, Jun 4, 2025 at 6:20 PM Ivo Marsh <ivo@example.net> wrote:\n" + quote, has: []string{"Yes."}, lacks: old, quoted: true},
		"reply of Gmail, folded":       {head: reply, body: "Yes.\n\nOn Wed, Jun 4, 2025 at 6:20 PM Ivo Marsh\n<ivo@example.net> wrote:\n" + quote, has: []string{"Yes."}, lacks: append(old, "Ivo"), quoted: true},
		"reply of Apple":               {head: reply, body: "Yes.\n\nOn 4 Jun 2025, at 18:20, Ivo Marsh wrote:\n" + quote, has: []string{"Yes."}, lacks: old, quoted: true},
		"reply of Thunderbird":         {head: reply, body: "On 6/4/25 18:20, Ivo Marsh wrote:\n> The lock is rusty.\nYes.", has: []string{"Yes."}, lacks: old, quoted: true},
		"reply of mutt":                {head: reply, body: "Ivo Marsh <ivo@example.net> writes:\n> The lock is rusty.\nYes.", has: []string{"Yes."}, lacks: old, quoted: true},
		"reply with answers between":   {head: reply, body: "On 6/4/25 18:20, Ivo wrote:\n> The lock is rusty.\nOil it.\n> And the door?\nLater.", has: []string{"Oil it.", "Later."}, lacks: append(old, "And the door?"), quoted: true},
		"reply without marks":          {head: reply, body: "Yes.\n\nOn Wed, Jun 4, 2025 at 6:20 PM Ivo Marsh <ivo@example.net> wrote:\n\nThe lock is rusty.", has: []string{"Yes."}, lacks: old, quoted: true},
		"reply of Outlook":             {head: reply, body: "Yes.\n\n" + strings.Repeat("_", 32) + "\n" + block, has: []string{"Yes."}, lacks: old, quoted: true},
		"reply of old Outlook":         {head: reply, body: "Yes.\n\n-----Original Message-----\n" + block, has: []string{"Yes."}, lacks: old, quoted: true},
		"reply in bold":                {head: reply, body: "Yes.\n\n*From:* Ivo <ivo@example.net>\n*Sent:* Wednesday, 4 June 2025 18:20\n*To:* Tove\n*Subject:* Boat\n\nThe lock is rusty.", has: []string{"Yes."}, lacks: old, quoted: true},
		"reply of Proton":              {head: reply, body: "Yes.\n\n------- Original Message -------\nOn Wednesday, June 4th, 2025 at 6:20 PM, Ivo <ivo@example.net> wrote:\n" + quote, has: []string{"Yes."}, lacks: append(old, "Original Message"), quoted: true},
		"reply in German":              {head: "Subject: AW: Bootshaus\n", body: "Ja.\n\nAm Mi., 4. Juni 2025 um 18:20 Uhr schrieb Ivo <ivo@example.net>:\n" + quote, has: []string{"Ja."}, lacks: old, quoted: true},
		"reply in French":              {head: reply, body: "Oui.\n\nLe mer. 4 juin 2025 à 18:20, Ivo <ivo@example.net> a écrit :\n" + quote, has: []string{"Oui."}, lacks: old, quoted: true},
		"reply in Spanish":             {head: reply, body: "Sí.\n\nEl mié, 4 jun 2025 a las 18:20, Ivo (<ivo@example.net>) escribió:\n" + quote, has: []string{"Sí."}, lacks: old, quoted: true},
		"reply in Russian":             {head: reply, body: "Да.\n\nср, 4 июн. 2025 г. в 18:20, Ivo <ivo@example.net>:\n" + quote, has: []string{"Да."}, lacks: old, quoted: true},
		"reply in Japanese":            {head: reply, body: "はい。\n\n2025年6月4日(水) 18:20 Ivo <ivo@example.net>:\n" + quote, has: []string{"はい。"}, lacks: old, quoted: true},
		"reply in Dutch":               {head: "Subject: Antw: Loods\n", body: "Ja.\n\nVan: Ivo <ivo@example.net>\nVerzonden: woensdag 4 juni 2025 18:20\nAan: Tove\nOnderwerp: Loods\n\nThe lock is rusty.", has: []string{"Ja."}, lacks: old, quoted: true},
		"reply by its subject in list": {head: "Subject: [sheds] Re: Boat shed\n", body: "On 6/4/25 18:20, Ivo wrote:\n> The lock is rusty.\nYes.", has: []string{"Yes."}, lacks: old, quoted: true},
		"reply of Apple on a phone":    {head: reply, body: "Yes.\n\nSent from my phone\n\n> On 4 Jun 2025, at 18:20, Ivo <ivo@example.net> wrote:\n> \n> The lock is rusty.\n", has: []string{"Yes."}, lacks: append(old, "Ivo"), quoted: true},
		"reply of Apple, folded":       {head: reply, body: "Yes.\n\n> On 4 Jun 2025, at 18:20, Ivo Marsh\n> <ivo@example.net> wrote:\n> \n> The lock is rusty.\n", has: []string{"Yes."}, lacks: append(old, "Ivo"), quoted: true},
		"marks around what is said":    {head: reply, body: "Yes.\n\n> On 4 Jun 2025, at 18:20, Ivo Marsh wrote:\nThe lock is rusty.", has: old},
		"reply of Horde":               {head: reply, body: "Zitat von Ivo <ivo@example.net>:\n\n> The lock is rusty.\n\nYes.", has: []string{"Yes."}, lacks: append(old, "Zitat"), quoted: true},
		"reply of Zoho":                {head: reply, body: "Yes.\n\n---- On Wed, 04 Jun 2025 18:20:00 +0200 Ivo <ivo@example.net> wrote ----\n\nThe lock is rusty.", has: []string{"Yes."}, lacks: old, quoted: true},
		"reply with the date first":    {head: reply, body: "Ja.\n\nGesendet: Mittwoch, 04. Juni 2025 um 18:20 Uhr\nVon: \"Ivo\" <ivo@example.net>\nAn: tove@example.org\nBetreff: x\n\nThe lock is rusty.", has: []string{"Ja."}, lacks: old, quoted: true},
		"reply with the subject first": {head: reply, body: "Yes.\n\n-------- Original Message --------\nSubject: x\nDate: Wed, 4 Jun 2025 18:20:00 +0200\nFrom: Ivo\n\nThe lock is rusty.", has: []string{"Yes."}, lacks: old, quoted: true},
		"reply in Hebrew":              {head: reply, body: "כן\n\n\u202bבתאריך יום ד׳, 4 ביוני 2025 ב-18:20 מאת \u202aIvo\u202c\u200f <\u202aivo@example.net\u202c\u200f>:\u202c\n\n> The lock is rusty.", has: []string{"כן"}, lacks: append(old, "Ivo"), quoted: true},
		"reply in Portuguese":          {head: reply, body: "Sim.\n\nDe: Ivo Marsh\nEnviada em: quarta-feira, 4 de junho de 2025 18:20\nPara: Tove\nAssunto: x\n\nThe lock is rusty.", has: []string{"Sim."}, lacks: old, quoted: true},
		"reply in Ukrainian":           {head: reply, body: "Так.\n\nВід: Ivo\nНадіслано: 4 червня 2025 р. 18:20\nКому: Tove\nТема: x\n\nThe lock is rusty.", has: []string{"Так."}, lacks: old, quoted: true},
		"reply in Hungarian":           {head: reply, body: "Igen.\n\nFeladó: Ivo\nElküldve: 2025. június 4. 18:20\nCímzett: Tove\nTárgy: x\n\nThe lock is rusty.", has: []string{"Igen."}, lacks: old, quoted: true},
		"reply in HTML":                {head: reply + "Content-Type: text/html\n", body: "<p>Yes.</p><div class=\"gmail_quote\">On Wed, Jun 4, 2025 at 6:20 PM Ivo &lt;ivo@example.net&gt; wrote:<br><blockquote>The lock is rusty.</blockquote></div>", has: []string{"Yes."}, lacks: old, quoted: true},
		"forward in HTML":              {head: forward + "Content-Type: text/html\n", body: "<div class=\"gmail_quote\">---------- Forwarded message ---------<br>From: Ivo<br><br>The lock is rusty.</div>", has: old},
		"quotation in HTML":            {head: fresh + "Content-Type: text/html\n", body: "<p>The poet has it:</p><blockquote>The lock is rusty.<br>The sea is wide.</blockquote>", has: []string{"> The lock is rusty.\n> The sea is wide."}},
	}
	for name, c := range cases {
		c.check(t, name)
	}
}

func (c mailCase) check(t *testing.T, name string) {
	t.Helper()
	var got string
	origin, err := estimate.Cut(t.Context(), estimate.File{Path: "a.eml", Content: mailHead + c.head + "\n" + c.body}, time.UTC,
		func(p estimate.Point) error {
			got += p.Content + "\n"
			return checkPoint(p)
		})
	if err != nil {
		t.Errorf("%s: %v", name, err)
	}
	for _, want := range c.has {
		if strings.Count(got, want) != 1 {
			t.Errorf("%s: %q is not once in\n%s", name, want, got)
		}
	}
	for _, not := range c.lacks {
		if strings.Contains(got, not) {
			t.Errorf("%s: %q is in\n%s", name, not, got)
		}
	}
	quoted := slices.ContainsFunc(origin.Remarks, func(r estimate.Remark) bool { return r.Code == estimate.QuotedText })
	if quoted != c.quoted {
		t.Errorf("%s: the remarks are %+v", name, origin.Remarks)
	}
}

// Attached texts, calendars and messages are read; names of files are kept, and what is no text is counted.
func TestCut_MailParts(t *testing.T) {
	part := func(head, body string) string { return "--b\n" + head + "\n\n" + body + "\n" }
	mixed := fresh + "Content-Type: multipart/mixed; boundary=b\n"
	nested := "From: =?utf-8?q?J=C3=B8rn?= <jorn@example.org>\nDate: Wed, 4 Jun 2025 18:20:00 +0200\nSubject: Slipway\n\nThe slip is wet.\n"
	event := "BEGIN:VCALENDAR\nBEGIN:VEVENT\nUID:1\nDTSTART:20250611T090000Z\nSUMMARY:Launch day\nLOCATION:Slip 2\nEND:VEVENT\nEND:VCALENDAR"
	for name, c := range map[string]mailCase{
		"attached text":            {head: mixed, body: part("Content-Type: text/plain", "See.") + part("Content-Type: text/plain; name=log.txt\nContent-Disposition: attachment; filename=log.txt", "Winch 3 failed."), has: []string{"See.", "log.txt\nWinch 3 failed."}},
		"text by its name":         {head: mixed, body: part("Content-Type: text/plain", "See.") + part("Content-Type: application/octet-stream; name=\"log.txt\"\nContent-Transfer-Encoding: base64", base64.StdEncoding.EncodeToString([]byte("Winch 3 failed."))), has: []string{"Winch 3 failed."}},
		"attached message":         {head: mixed, body: part("Content-Type: text/plain", "See.") + part("Content-Type: message/rfc822\nContent-Disposition: attachment", nested), has: []string{"Jørn <jorn@example.org>", "Date: Wed, 4 Jun 2025 18:20:00 +0200", "Slipway", "The slip is wet."}},
		"attached message, base64": {head: mixed, body: part("Content-Type: message/rfc822\nContent-Transfer-Encoding: base64", base64.StdEncoding.EncodeToString([]byte(nested))), has: []string{"jorn@example.org", "The slip is wet."}},
		"message of a reply":       {head: reply + "Content-Type: multipart/mixed; boundary=b\n", body: part("Content-Type: text/plain", "Yes.") + part("Content-Type: message/rfc822", "Subject: x\n\nOn 6/4/25 18:20, Ivo wrote:\n> kept words"), has: []string{"Yes.", "> kept words"}},
		"digest":                   {head: fresh + "Content-Type: multipart/digest; boundary=b\n", body: "--b\n\n" + nested + "--b--", has: []string{"jorn@example.org", "The slip is wet."}},
		"attached calendar":        {head: mixed, body: part("Content-Type: text/plain", "Come.") + part("Content-Type: text/calendar; name=invite.ics\nContent-Disposition: attachment", event), has: []string{"Come.", "Launch day", "2025-06-11 09:00 UTC", "Slip 2"}},
		"invitation":               {head: fresh + "Content-Type: multipart/alternative; boundary=b\n", body: part("Content-Type: text/plain", "Come.") + part("Content-Type: text/html", "<p>Come.</p>") + part("Content-Type: text/calendar", event), has: []string{"Come.", "Launch day"}},
		"only a calendar":          {head: fresh + "Content-Type: text/calendar\n", body: event, has: []string{"Launch day"}},
		"a stub of plain text":     {head: fresh + "Content-Type: multipart/alternative; boundary=b\n", body: part("Content-Type: text/plain", "This mail needs HTML.") + part("Content-Type: text/html", "<p>"+strings.Repeat("The mast is up. ", 40)+"Bring rope.</p>"), has: []string{"Bring rope."}, lacks: []string{"needs HTML"}},
		"attachment in HTML":       {head: fresh + "Content-Type: multipart/alternative; boundary=b\n", body: part("Content-Type: text/plain", "See.") + part("Content-Type: multipart/mixed; boundary=c", "--c\nContent-Type: text/html\n\n<p>See.</p>\n--c\nContent-Type: text/plain; name=a.txt\n\nThe tide table.\n--c--"), has: []string{"See.", "The tide table."}},
		"multipart without parts":  {head: fresh + "Content-Type: multipart/mixed; boundary=none\n", body: "All of it is here.", has: []string{"All of it is here."}},
		"words in two lines":       {head: fresh + "Content-Type: text/plain; format=flowed; delsp=yes\n", body: "The ma \nst is up.  \nNow.\n> th \n> ey\n-- \nTove", has: []string{"The mast is up. Now.\n> they\n-- \nTove"}},
		"lines of words":           {head: fresh + "Content-Type: text/plain; format=flowed\n", body: "The mast \nis up.", has: []string{"The mast \nis up."}},
		"charset of a page":        {head: fresh + "Content-Type: text/html\nContent-Transfer-Encoding: quoted-printable\n", body: "<meta charset=3Dwindows-1251><p>=CB=EE=E4=EA=E0</p>", has: []string{"Лодка"}},
		"an unknown charset":       {head: fresh + "Content-Type: text/plain; charset=x-unknown\nContent-Transfer-Encoding: quoted-printable\n", body: "B=C3=A5t", has: []string{"Båt"}},
		"UTF-8 named as Latin":     {head: fresh + "Content-Type: text/plain; charset=iso-8859-1\nContent-Transfer-Encoding: quoted-printable\n", body: "B=C3=A5t", has: []string{"Båt"}},
	} {
		c.check(t, name)
	}
}

// A file of Apple Mail is a message in a frame; what a mail server keeps in a mailbox is none.
func TestCut_MailOfPrograms(t *testing.T) {
	frame := "182       \n" + mailHead + fresh + "\nThe mast is up.\n<?xml version=\"1.0\"?>\n<plist version=\"1.0\"><dict/></plist>\n"
	points, reason := cutAll(t, estimate.File{Path: "7.emlx", Content: frame}, time.UTC)
	if len(points) != 1 || points[0].Content != "The mast is up." || points[0].Identity != "tove@example.org" {
		t.Errorf("%s %+v", reason, points)
	}
	box := "From MAILER-DAEMON Thu Jun  5 07:30:00 2025\nFrom: Mail System <MAILER-DAEMON@example.org>\n" +
		"Subject: DON'T DELETE THIS MESSAGE -- FOLDER INTERNAL DATA\n\nThis text is part of the format of your mail folder.\n\n" +
		"From a@b Thu Jun  5 07:31:00 2025\n" + mailHead + fresh + "\nThe mast is up.\n"
	var got []string
	origin, err := estimate.Cut(t.Context(), estimate.File{Path: "a.mbox", Content: box}, time.UTC, func(p estimate.Point) error {
		got = append(got, p.Content)
		return nil
	})
	if err != nil || len(got) != 1 || len(origin.Remarks) != 1 || origin.Remarks[0].Code != estimate.ProgramLines {
		t.Errorf("%v %q %+v", err, got, origin.Remarks)
	}
}

// A message without words is counted, and so is an attachment that is no text. Neither stops a mailbox.
func TestCut_MailRemarks(t *testing.T) {
	box := "From a@b Thu Jun  5 07:30:00 2025\nFrom: a@b\nTo: c@d\n\n \n\nFrom a@b Thu Jun  5 07:31:00 2025\n" + mailHead +
		"Content-Type: multipart/mixed; boundary=b\n\n--b\n\nSee.\n--b\nContent-Type: image/png; name=p.png\n\nx\n--b--\n"
	var content []string
	origin, err := estimate.Cut(t.Context(), estimate.File{Path: "a.mbox", Content: box}, time.UTC, func(p estimate.Point) error {
		content = append(content, p.Content)
		return nil
	})
	runtest.Must(t, err)
	got := map[estimate.RemarkCode]int{}
	for _, r := range origin.Remarks {
		got[r.Code] = r.Count
		if r.Text == "" || r.First == "" {
			t.Errorf("the remark is %+v", r)
		}
	}
	want := map[estimate.RemarkCode]int{estimate.NoWords: 1, estimate.NotText: 1}
	if diff := cmp.Diff(want, got); diff != "" || len(content) != 1 {
		t.Errorf("%q\n%s", content, diff)
	}
}

// A line "From …" begins a message if it has the form of mailboxes and a header follows; any other is text.
func TestCut_FromLines(t *testing.T) {
	begin := func(line string) string {
		return line + "\nFrom: Tove <tove@example.org>\nSubject: s\n\nfirst words\n\n"
	}
	for _, line := range []string{
		"From tove@example.org Thu Jun  5 07:30:00 2025", "From - Thu Jun 05 07:30:00 2025", "From MAILER-DAEMON Thu Jun  5 07:30:00 2025",
		"From 1834567890123456789@xxx Thu Jun 05 07:30:00 +0000 2025", "From tove at example.org  Thu Jun  5 07:30:00 2025",
		"From tove@example.org Thu Jun  5 09:30:00 CEST 2025", "From tove@example.org Thu Jun  5 07:30 2025",
		"From ???@??? Thu Jun 05 07:30:00 2025", "From tove@example.org Thu, 5 Jun 2025 07:30:00 +0000", "From tove@example.org 2025-06-05T07:30:00Z",
		"From tove@example.org Thu Jun  5 07:30:00 2025 remote from hub", "From  Thu Jun  5 07:30:00 2025",
	} {
		box := begin(line) + begin(line) + begin(strings.Replace(line, ":30", ":31", 1))
		points, reason := cutAll(t, estimate.File{Path: "a.mbox", Content: box}, time.UTC)
		if len(points) != 3 || points[0].At.Format(time.RFC3339) != "2025-06-05T07:30:00Z" {
			t.Errorf("%q: %d messages, %s, %v", line, len(points), reason, points)
		}
	}
	for _, line := range []string{
		"From June 2025 on the shed is shut\nNote: bring a key", "From 10:15 to 11:30 the slip is free\nSubject: to change", "From the board, 5 Jun 2025 07:30:00\nTo: all",
		"From tove@example.org\nSubject: x", "From here to 2025\n\nFrom: a", "From Ivo and Tove Thu Jun  5 07:30:00 2025\nDate: x",
		"From tove@example.org Thu Jun  5 07:30:00 2025\nis how it begins", "From tove@example.org Thu Jun 35 07:30:00 2025\nSubject: x",
	} {
		points, reason := cutAll(t, estimate.File{
			Path: "a.mbox", Content: begin("From tove@example.org Thu Jun  5 07:30:00 2025") + line + "\nlast words\n",
		}, time.UTC)
		if len(points) != 1 || !strings.Contains(points[0].Content, line+"\nlast words") {
			t.Errorf("%q: %d messages, %s, %v", line, len(points), reason, points)
		}
	}
}

// The time of a message is its date, else when the last server received it, else that of the From line.
func TestCut_MailTimes(t *testing.T) {
	received := "Received: from a by b; Thu, 5 Jun 2025 09:30:00 +0200\nReceived: from c by a; Thu, 5 Jun 2025 09:29:00 +0200\n"
	for head, want := range map[string]string{
		"Date: Thu, 5 Jun 2025 07:30:00 +0000\n" + received:    "07:30",
		"Date: Do, 5 Juni 2025 09:30:00 +0200\n":               "07:30",
		"Date: =?utf-8?q?jeu=2E_5_juin_2025_09=3A30?= +0200\n": "07:30",
		received:                       "07:30",
		"Date: yesterday\n" + received: "07:30",
		"Date: Thu, 5 Jun 2025 09:30 XST\n" + received:                      "07:30",
		"Date: Thu, 1 Jan 1970 00:00:00 +0000\n" + received:                 "07:30",
		"Received: by b (id 1; x) ; Thu, 5 Jun 2025 00:30:00 -0700 (PDT)\n": "07:30",
		"X-None: 1\n":             "06:15",
		"Received: from a by b\n": "06:15",
	} {
		points, reason := cutAll(t, estimate.File{
			Path: "a.mbox", Content: "From a@b Thu Jun  5 06:15:00 2025\n" + head + "From: a@b\nSubject: s\n\ntea\n",
		}, time.UTC)
		if len(points) != 1 || points[0].At.Format("2006-01-02 15:04") != "2025-06-05 "+want {
			t.Errorf("%q: %v, %s", head, points, reason)
		}
	}
}

// Names are decoded in all the forms that programs write.
func TestCut_MailNames(t *testing.T) {
	for field, want := range map[string]string{
		`=?utf-8?Q?J=C3=B8rn_Lie?= <j@example.org>`: "Jørn Lie <j@example.org>", `"=?utf-8?Q?J=C3=B8rn_Lie?=" <j@example.org>`: "Jørn Lie <j@example.org>",
		`"=?iso-8859-1?B?SvhybiBMaWU=?=" <j@example.org>`: "Jørn Lie <j@example.org>", `"Lie, =?utf-8?q?J=C3=B8rn?=" <j@example.org>`: "Lie, Jørn <j@example.org>",
		`=?koi8-r?B?6dfBzg==?= <j@example.org>`: "Иван <j@example.org>", `=?ibm850?Q?J=9Brn?= <j@example.org>`: "Jørn <j@example.org>",
		`Jørn Lie <j@example.org>`: "Jørn Lie <j@example.org>", `=?x-none?q?J?= <j@example.org>`: "=?x-none?q?J?= <j@example.org>",
		`Jørn [shed] Lie <j@example.org>`: "Jørn [shed] Lie <j@example.org>",
	} {
		points, reason := cutAll(t, estimate.File{Path: "a.eml", Content: "From: " + field + "\nSubject: s\n\ntea\n"}, time.UTC)
		if len(points) != 1 || points[0].Identity != "j@example.org" || !strings.Contains(string(points[0].Metadata), want) {
			t.Errorf("%s: %s, %v", field, reason, points)
		}
	}
}

// encoded writes a text in a charset.
func encoded(t *testing.T, charset, text string) string {
	t.Helper()
	e, err := ianaindex.IANA.Encoding(charset)
	if err != nil || e == nil {
		if e, err = htmlindex.Get(charset); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := e.NewEncoder().String(text)
	if err != nil {
		t.Fatalf("%s: %v", charset, err)
	}
	return raw
}

// Each message of a mailbox is in a charset of its own, in its body and in its header.
func TestText_MailCharsets(t *testing.T) {
	texts := map[string]string{
		"iso-8859-1": "Slæbested 7:40", "iso-8859-2": "Łódź na przystani", "windows-1250": "Člun je šedý", "windows-1251": "Лодка на причале",
		"koi8-r": "Лодка на причале", "iso-8859-5": "Лодка на причале", "iso-8859-7": "Η βάρκα", "windows-1253": "Η βάρκα", "windows-1254": "Kayık ıslak",
		"windows-1255": "הסירה", "windows-1256": "القارب", "shift_jis": "船は赤いです", "euc-jp": "船は赤いです", "iso-2022-jp": "船は赤いです",
		"gb2312": "船是红的", "gbk": "船是红的", "gb18030": "船是红的", "big5": "船是紅的", "euc-kr": "배는 빨갛다", "utf-8": "Slæbested",
		"macintosh": "Slæbested", "ibm850": "Slæbested", "koi8-u": "Човен її", "iso-8859-15": "Preis 5 €", "windows-1257": "Laiva žalia",
	}
	var box strings.Builder
	var want []string
	for charset, text := range texts {
		raw := encoded(t, charset, text)
		box.WriteString("From a@b Thu Jun  5 07:30:00 2025\r\nFrom: a@b\r\nSubject: " + charset + "\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n" +
			"Content-Type: text/plain; charset=" + charset + "\r\n\r\n" + raw + " one.\r\n--b\r\nContent-Type: text/html; charset=\"" + charset +
			"\"\r\nContent-Transfer-Encoding: base64\r\n\r\n" + base64.StdEncoding.EncodeToString([]byte("<p>"+raw+" two.</p>")) + "\r\n--b--\r\n\r\n")
		want = append(want, charset+" "+text+" one.\n\n"+text+" two.")
	}
	f, err := estimate.Decoded(t.Context(), "a.mbox", "", []byte(box.String()))
	if err != nil || f.Skipped != "" {
		t.Fatal(err, f.Skipped)
	}
	points, reason := cutAll(t, f, time.UTC)
	var got []string
	for _, p := range points {
		got = append(got, p.Label+" "+p.Content)
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" || reason != "" {
		t.Errorf("%s\n%s", reason, diff)
	}
}

// A file that is no mail is UTF-8 in spite of some bad bytes, else in the charset that fits best.
func TestText_Charsets(t *testing.T) {
	for charset, text := range map[string]string{
		"iso-8859-1": "Slæbestedet åbner kl. 7:40, spørg Jørn.", "windows-1252": "Das Boot “Möwe” ist grün – 5 €", "iso-8859-2": "Łódź stoi na przystani, żagiel jest mokry.",
		"windows-1250": "Člun je šedý a stojí u břehu, říká Jiří.", "windows-1251": "Лодка стоит на причале, парус мокрый.", "koi8-r": "Лодка стоит на причале, парус мокрый.",
		"windows-1253": "Η βάρκα είναι στην προβλήτα και το πανί είναι βρεγμένο.", "windows-1255": "הסירה עומדת ליד המזח והמפרש רטוב", "windows-1256": "القارب يقف عند الرصيف والشراع مبلل",
		"shift_jis": "船は赤いです。帆は濡れています。", "euc-jp": "船は赤いです。帆は濡れています。", "gb18030": "船停在码头，帆是湿的。", "big5": "船停在碼頭，帆是濕的。",
		"euc-kr": "배는 부두에 있고 돛은 젖었다.", "ibm866": "Лодка стоит на причале, парус мокрый.", "utf-16le": "\ufeffThe boat is red", "utf-16be": "\ufeffThe boat is red",
	} {
		raw := "boat\n" + encoded(t, charset, text)
		if strings.HasPrefix(charset, "utf-16") {
			raw = encoded(t, charset, text)
		}
		got, guess, err := estimate.Text(t.Context(), "a.txt", "", []byte(raw))
		if err != nil || strings.TrimPrefix(strings.TrimPrefix(got, "\ufeff"), "boat\n") != strings.TrimPrefix(text, "\ufeff") {
			t.Errorf("%s: %q, %+v, %v", charset, got, guess, err)
		}
		if (guess == nil) != strings.HasPrefix(charset, "utf-16") {
			t.Errorf("%s: the guess is %+v", charset, guess)
		}
	}
	for raw, want := range map[string]string{
		"Bl\xc3\xa5 b\xc3\xa5t \xff ok": "Blå båt \ufffd ok", "T\x00e\x00a\x00 \x00i\x00s\x00": "Tea is", "\x00T\x00e\x00a\x00 \x00i\x00s": "Tea is",
	} {
		if got, _, err := estimate.Text(t.Context(), "a.txt", "", []byte(raw)); err != nil || got != want {
			t.Errorf("%q is %q, %v", raw, got, err)
		}
	}
	page := "<html><meta charset=\"windows-1251\"><p>" + encoded(t, "windows-1251", "да")
	if got, _, err := estimate.Text(t.Context(), "a.html", "", []byte(page)); err != nil || !strings.Contains(got, "да") {
		t.Errorf("the page is %q, %v", got, err)
	}
	for raw, want := range map[string]string{"%PDF-1.7": "PDF", "PK\x03\x04": "ZIP", "!BDN": "mbox or .eml", "\x7fELF\x00\xff": "not text", "a\x00b": "U+0000"} {
		if f, err := estimate.Decoded(t.Context(), "a", "", []byte(raw)); err != nil || !strings.Contains(f.Skipped, want) {
			t.Errorf("%q: %q, %v", raw, f.Skipped, err)
		}
	}
}

// FuzzText decodes any bytes: what comes out is UTF-8, and what is cut of it can be sent.
func FuzzText(f *testing.F) {
	for _, raw := range []string{
		"From a@b Thu Jun  5 07:30:00 2025\nFrom: a\nContent-Type: text/plain; charset=koi8-r\n\n\xec\xcf\xc4\xcb\xc1\n",
		"From: a\nTo: b\nContent-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: text/plain; charset=shift_jis\n\n\x91\x44\n--b--", "\xff\xfea\x00",
		"\x00a\x00b\x00c\x00d", "\xe6\xe5", strings.Repeat("\x91\x44", 100), "\xef\xbb\xbftea", "<meta charset=x>\xe6",
	} {
		f.Add(raw, uint8(0), uint16(3))
	}
	f.Fuzz(func(t *testing.T, raw string, shape uint8, times uint16) {
		raw = shaped(raw, shape, times)
		for _, name := range []string{"a.eml", "a.mbox", "a.txt", "a.html"} {
			file, err := estimate.Decoded(t.Context(), name, "", []byte(raw))
			runtest.Must(t, err)
			if !utf8.ValidString(file.Content) || len(file.Content) > 4*len(raw)+100 {
				t.Fatalf("%q becomes %q", raw, file.Content)
			}
			if file.Skipped == "" {
				cutAll(t, file, time.UTC)
			}
		}
	})
}

// The charset of a short text is found by its letters.
func TestText_GuessedCharsets(t *testing.T) {
	for _, c := range []struct {
		charset encoding.Encoding
		text    string
	}{
		{charmap.Windows1252, "¿Cuándo sale el niño? ¡Mañana!"},
		{charmap.Windows1252, "Le bateau est mouillé à l’été, déjà"},
		{charmap.Windows1252, "O barco não está à venda às três"},
		{charmap.Windows1252, "Segel: 12 € – “gut”"},
		{charmap.Windows1252, "Þetta er bátur sem ég ætla að mála við ána"},
		{charmap.ISO8859_15, "Segel 12 € für das Œuvre"},
		{charmap.Windows1250, "Vízhatlan hajó, tükrös bőrönd, fűtés"},
		{charmap.ISO8859_2, "Kötél és űrszelvény, őszi vitorla"},
		{charmap.CodePage852, "Łódź stoi przy molo, żagiel"},
		{charmap.Windows1254, "Yelkenli ıslak, ağır şişe"},
		{charmap.Windows1257, "Laivas šlapias, burė žalia, ąžuolas"},
		{charmap.Windows1257, "Kuģis ir slapjš, bura zaļa"},
		{charmap.Windows1251, "ЛОДКА МОКРАЯ"},
		{charmap.KOI8R, "ЛОДКА МОКРАЯ"},
		{charmap.KOI8U, "Човен її мокрий, ґрати є"},
		{charmap.Windows1251, "Човен її мокрий, ґрати є"},
		{charmap.Windows874, "เรืออยู่ที่ท่า"},
		{charmap.CodePage437, "Das Boot für Möwen ist grün"},
		{japanese.EUCJP, "船の帆は赤い"},
		{japanese.ISO2022JP, "船の帆は赤い"},
		{simplifiedchinese.GBK, "船的帆是红的"},
		{simplifiedchinese.GBK, "码头今天不开放"},
		{korean.EUCKR, "돛은 빨갛고 배는 젖었다"},
	} {
		raw, err := c.charset.NewEncoder().String(c.text)
		if err != nil {
			t.Fatal(c.text, err)
		}
		if got, guess, err := estimate.Text(t.Context(), "a.txt", "", []byte(raw)); err != nil || got != c.text {
			t.Errorf("%s in %v: %q, %+v, %v", c.text, c.charset, got, guess, err)
		}
	}
}

// Programs write the name of a charset in many ways.
func TestText_CharsetNames(t *testing.T) {
	for name, charset := range map[string]encoding.Encoding{
		"windows1251": charmap.Windows1251, "win-1251": charmap.Windows1251, "cp-1251": charmap.Windows1251, "x-cp1251": charmap.Windows1251,
		"CP1251": charmap.Windows1251, "latin-1": charmap.Windows1252, "latin1": charmap.Windows1252, "iso8859-1": charmap.Windows1252,
		"iso8859_2": charmap.ISO8859_2, "x-mac-cyrillic": charmap.MacintoshCyrillic, "koi8r": charmap.KOI8R, "x-unknown": charmap.Windows1251,
	} {
		want, err := charset.NewDecoder().String("\xcb\xee\xe4\xea\xe0")
		runtest.Must(t, err)
		mail := "From: a@b\nTo: c@d\nContent-Type: text/plain; charset=" + name + "\n\n\xcb\xee\xe4\xea\xe0\n"
		f, err := estimate.Decoded(t.Context(), "a.eml", "", []byte(mail))
		if err != nil || !strings.HasSuffix(strings.TrimSpace(f.Content), want) {
			t.Errorf("%s: %q, %v", name, f.Content, err)
		}
	}
}
