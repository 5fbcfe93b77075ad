// Package mailboxtest makes mailboxes as people have them, for tests and measurements: of many charsets and forms, with
// replies, forwards and attachments.
package mailboxtest

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/unicode"
)

// fileBytes is the size from which the next message goes into another file: an import takes files of 16 MiB.
const fileBytes = 12 << 20

// Write writes mailboxes of some messages into a folder. Message n has the id n@example.org and the words that Word
// returns.
func Write(folder string, messages int) error {
	var box strings.Builder
	files := 0
	flush := func() error {
		if box.Len() == 0 {
			return nil
		}
		name := filepath.Join(folder, fmt.Sprintf("box-%03d.mbox", files))
		files++
		err := os.WriteFile(name, []byte(box.String()), 0o600)
		box.Reset()
		return err
	}
	for n := range messages {
		box.WriteString(Message(n))
		if box.Len() > fileBytes {
			if err := flush(); err != nil {
				return fmt.Errorf("write a mailbox: %w", err)
			}
		}
	}
	if err := flush(); err != nil {
		return fmt.Errorf("write a mailbox: %w", err)
	}
	return nil
}

// Word is in the text of message n, and of no other.
func Word(n int) string { return fmt.Sprintf("marker-%07d-end", n) }

// charsets are those of the messages in turn, each with words that it has.
var charsets = []struct {
	name     string
	encoding encoding.Encoding
	words    string
}{
	{"utf-8", unicode.UTF8, "Die Fähre legt um 7:40 an."},
	{"iso-8859-1", charmap.ISO8859_1, "Die Fähre legt um 7:40 an."},
	{"iso-8859-2", charmap.ISO8859_2, "Prom odpływa o świcie."},
	{"koi8-r", charmap.KOI8R, "Паром отходит утром."},
	{"windows-1251", charmap.Windows1251, "Паром отходит утром."},
	{"shift_jis", japanese.ShiftJIS, "船は朝に出ます。"},
	{"iso-2022-jp", japanese.ISO2022JP, "船は朝に出ます。"},
}

// Message returns message n with the line that begins it in a mailbox.
func Message(n int) string {
	at := time.Date(2019, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(n) * 17 * time.Minute)
	c := charsets[n%len(charsets)]
	words, err := c.encoding.NewEncoder().String(c.words)
	if err != nil {
		words = "The ferry leaves in the morning."
	}
	from := fmt.Sprintf("From p%d@example.org %s\nFrom: Person %d <p%d@example.org>\nTo: all@example.net\n"+
		"Message-ID: <%d@example.org>\nDate: %s\n", n%40, at.Format(time.ANSIC), n%40, n%40, n, at.Format(time.RFC1123Z))
	plain := "Content-Type: text/plain; charset=" + c.name + "\n"
	text := words + "\n" + Word(n) + "\n>From the pier it is near.\nFrom 2019 on it runs daily\nNote: be early.\n"
	quoted := fmt.Sprintf("\nOn Mon, 7 Jan 2019 at 10:00, Person <q@example.org> wrote:\n> the words of message %d\n", n-1)
	switch n % 5 {
	case 0:
		return from + fmt.Sprintf("Subject: Ferry %d\n", n) + plain + "\n" + text + "\n"
	case 1:
		head := fmt.Sprintf("Subject: Re: Ferry %d\nIn-Reply-To: <%d@example.org>\n", n, n-1)
		return from + head + plain + "\n" + text + quoted + "\n"
	case 2:
		return from + fmt.Sprintf("Subject: Fwd: Ferry %d\n", n) + plain +
			"\n---------- Forwarded message ---------\n" + text + "\n"
	case 3:
		return from + fmt.Sprintf("Subject: Ferry %d\nContent-Type: multipart/alternative; boundary=b\n\n--b\n", n) + plain +
			"Content-Transfer-Encoding: base64\n\n" + base64.StdEncoding.EncodeToString([]byte(text)) +
			"\n--b\nContent-Type: text/html\n\n<p>The same.</p>\n--b--\n\n"
	default:
		head := fmt.Sprintf("Subject: Ferry %d\nContent-Type: multipart/mixed; boundary=b\n\n--b\n", n)
		return from + head + plain + "\n" + text +
			"\n--b\nContent-Type: image/png; name=p.png\nContent-Transfer-Encoding: base64\n\n" +
			strings.Repeat("QUJD", 500) + "\n--b--\n\n"
	}
}
