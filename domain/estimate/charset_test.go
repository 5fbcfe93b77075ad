package estimate_test

import (
	"strings"
	"testing"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/korean"
	"golang.org/x/text/encoding/simplifiedchinese"

	"github.com/annals-project/annals/domain/estimate"
)

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
		if err != nil {
			t.Fatal(err)
		}
		mail := "From: a@b\nTo: c@d\nContent-Type: text/plain; charset=" + name + "\n\n\xcb\xee\xe4\xea\xe0\n"
		f, err := estimate.Decoded(t.Context(), "a.eml", "", []byte(mail))
		if err != nil || !strings.HasSuffix(strings.TrimSpace(f.Content), want) {
			t.Errorf("%s: %q, %v", name, f.Content, err)
		}
	}
}
