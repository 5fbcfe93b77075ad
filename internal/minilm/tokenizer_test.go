package minilm

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/annals-project/annals/internal/runtest"
)

// vocabulary is a small one; the id of a piece is its index.
var vocabulary = []string{
	"[PAD]", "[UNK]", "[CLS]", "[SEP]", "un", "##aff", "##able", "##a", "run", "##ning", "cafe", ",", "!", "$", "中", "##s",
	"a", "é", "##中", "—", "unaff", "і",
}

// tokenizerJSON returns a tokenizer.json with a vocabulary.
func tokenizerJSON(pieces []string) []byte {
	vocab, added := map[string]int{}, []map[string]any{}
	for id, piece := range pieces {
		vocab[piece] = id
		if strings.HasPrefix(piece, "[") {
			added = append(added, map[string]any{"id": id, "content": piece, "special": true})
		}
	}
	data, err := json.Marshal(map[string]any{
		"padding":       map[string]any{"strategy": map[string]any{"Fixed": 128}},
		"added_tokens":  added,
		"normalizer":    map[string]any{"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "lowercase": true},
		"pre_tokenizer": map[string]any{"type": "BertPreTokenizer"},
		"model": map[string]any{
			"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
			"max_input_chars_per_word": 100, "vocab": vocab,
		},
	})
	if err != nil {
		panic(err)
	}
	return data
}

func smallTokenizer(t testing.TB) *tokenizer {
	t.Helper()
	tok, err := parseTokenizer(tokenizerJSON(vocabulary))
	runtest.Must(t, err)
	return tok
}

func TestTokenizer_Encode(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"empty", "", ""},
		{"spaces", " \t\r\n\u00a0\u2003", ""},
		{"longest piece first", "unaffable", "unaff ##able"},
		{"several pieces", "running runs", "run ##ning run ##s"},
		{"upper case", "RUNNING", "run ##ning"},
		{"unknown end", "runx", "[UNK]"},
		{"unknown word between", "run xyz run", "run [UNK] run"},
		{"punctuation", "run,run!$", "run , run ! $"},
		{"unknown punctuation", "run#run", "run [UNK] run"},
		{"punctuation outside ASCII", "run—run", "run — run"},
		{"accents composed and not", "Café cafe\u0301 CAFE\u0301\u0301", "cafe cafe cafe"},
		{"accent in the vocabulary is not reached", "é", "[UNK]"},
		{"letter that decomposes to a known one", "\u0457", "і"},
		{"ideographs", "run中中runs", "run 中 中 run ##s"},
		{"controls and formats", "ru\x00n\x07\u200bn\u00ading \ufeffrun\ufffd", "run ##ning run"},
		{"invalid UTF-8", "ru\xffn \xc3 run\xf0\x9f", "run run"},
		{"literal token", "run[SEP]run [PAD]", "run [SEP] run [PAD]"},
		{"not quite literal", "[sep]", "[UNK] [UNK] [UNK]"},
		{"100 letters", "un" + strings.Repeat("a", 98), "un" + strings.Repeat(" ##a", 98)},
		{"101 letters", "un" + strings.Repeat("a", 99), "[UNK]"},
		{"a million letters", strings.Repeat("a", 1e6), "[UNK]"},
		{"a million marks", "run" + strings.Repeat("\u0301", 5e5), "run"},
	}
	tok := smallTokenizer(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			want := []int32{tok.cls}
			for piece := range strings.FieldsSeq(test.want) {
				want = append(want, int32(slices.Index(vocabulary, piece)))
			}
			want = append(want, tok.sep)
			if got := tok.encode(nil, test.text); !slices.Equal(got, want) {
				t.Errorf("got %d, want %d", got, want)
			}
		})
	}
}

func TestTokenizer_Limit(t *testing.T) {
	tok := smallTokenizer(t)
	for _, text := range []string{
		strings.Repeat("run ", 1000), strings.Repeat("unaaaaa", 1000), strings.Repeat(",", 1000),
		strings.Repeat("un"+strings.Repeat("a", 97)+" ", 100), strings.Repeat("[SEP]", 1000),
	} {
		ids := tok.encode([]int32{7}, text)
		if len(ids) > 1+maxTokens || ids[0] != 7 || ids[1] != tok.cls || ids[len(ids)-1] != tok.sep {
			t.Errorf("%.20q: %d ids: %d", text, len(ids), ids)
		}
	}
	if ids := tok.encode(nil, strings.Repeat("run ", 1000)); len(ids) != maxTokens {
		t.Errorf("%d ids, want %d", len(ids), maxTokens)
	}
	if ids := tok.encode(nil, strings.Repeat(" ", maxTextBytes)+"run"); len(ids) != 2 {
		t.Errorf("text after the limit was read: %d", ids)
	}
}

func TestHead(t *testing.T) {
	for _, test := range []struct {
		text string
		n    int
		want string
	}{
		{"abc", 3, "abc"},
		{"abcd", 3, "abc"},
		{"aé", 2, "a"},
		{"é", 1, ""},
		{"a🍣b", 4, "a"},
		{"a🍣b", 5, "a🍣"},
		{"\x80\x80\x80\x80\x80\x80", 5, "\x80\x80\x80\x80\x80"},
	} {
		if got := head(test.text, test.n); got != test.want {
			t.Errorf("head(%q, %d) = %q, want %q", test.text, test.n, got, test.want)
		}
	}
}

func TestParseTokenizer_Unsupported(t *testing.T) {
	for name, change := range map[string][2]string{
		"not JSON":               {`{`, `[`},
		"another normalizer":     {`"BertNormalizer"`, `"NFKC"`},
		"cased":                  {`"lowercase":true`, `"lowercase":false`},
		"accents stay":           {`"lowercase":true`, `"lowercase":true,"strip_accents":false`},
		"another pre-tokenizer":  {`"BertPreTokenizer"`, `"Whitespace"`},
		"another model":          {`"WordPiece"`, `"BPE"`},
		"no prefix":              {`"continuing_subword_prefix":"##"`, `"continuing_subword_prefix":""`},
		"long words":             {`"max_input_chars_per_word":100`, `"max_input_chars_per_word":100000`},
		"no words":               {`"max_input_chars_per_word":100`, `"max_input_chars_per_word":0`},
		"negative id":            {`"run":8`, `"run":-8`},
		"huge id":                {`"run":8`, `"run":4294967296`},
		"unknown token missing":  {`"unk_token":"[UNK]"`, `"unk_token":"[WHAT]"`},
		"literal of another id":  {`"id":3`, `"id":4`},
		"literal of no token":    {`"content":"[SEP]"`, `"content":"[END]"`},
		"empty literal":          {`"content":"[SEP]"`, `"content":""`},
		"literal that is a word": {`"special":true`, `"single_word":true`},
		"separator missing":      {`"[SEP]":3`, `"[END]":3`},
	} {
		data := strings.Replace(string(tokenizerJSON(vocabulary)), change[0], change[1], 1)
		if _, err := parseTokenizer([]byte(data)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func FuzzTokenizer(f *testing.F) {
	for _, text := range []string{"", "unaffable, running!", "Café 中文 [SEP] \xff", "e\u0301\u0323", "한국어 \u1100\u1161"} {
		f.Add(text)
	}
	tok := smallTokenizer(f)
	f.Fuzz(func(t *testing.T, text string) {
		ids := tok.encode(nil, text)
		if len(ids) < 2 || len(ids) > maxTokens || ids[0] != tok.cls || ids[len(ids)-1] != tok.sep {
			t.Fatalf("ids %d", ids)
		}
		for _, id := range ids {
			if id < 0 || id > tok.maxID {
				t.Fatalf("id %d is not in the vocabulary", id)
			}
		}
		if utf8.ValidString(text) && len(text) < maxTextBytes {
			if again := tok.encode(nil, " "+text+"\n"); !slices.Equal(ids, again) {
				t.Fatalf("with spaces around: %d, want %d", again, ids)
			}
		}
	})
}
