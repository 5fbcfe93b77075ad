package recall_test

import (
	"slices"
	"testing"

	"github.com/annals-project/annals/domain/recall"
)

// Each query finds its text by a form of its characters, for less than the form that it is written in.
func TestQuery_Variants(t *testing.T) {
	a := recall.Shared()
	for _, c := range []struct{ query, text string }{
		{"电脑", "我們把鑰匙放在電腦旁邊。"},
		{"電腦", "我们把钥匙放在电脑旁边。"},
		{"リンゴ", "りんごを三つ買った。"},
		{"りんご", "リンゴを三つ買った。"},
		{"項目", "修改了项目配置"},
		{"头发", "頭髮"},
		{"出发", "出發"},
		{"皇后", "皇后"},
		{"以后", "以後"},
		{"台灣", "臺灣"},
		{"台湾", "臺灣"},
		{"臺灣", "台湾"},
		{"ラーメン", "らーめん"},
		{"めがね", "メガネ"},
		{"ﾒｶﾞﾈ", "めがね"},
		{"理发店", "理髮店"},
		{"簡體字", "简体字"},
	} {
		terms := a.Query(c.query)
		counts := recall.Counts(terms, recall.Terms{Text: a.Terms(c.text)})
		q := recall.Question{Terms: terms}
		if held := q.Held(counts); held != recall.AllWords(q.Own()) {
			t.Errorf("%q holds %b of %q, which are %v", c.text, held, c.query, terms)
		}
		for i, term := range terms {
			if term.Kind == recall.Stem && term.Share >= 1 {
				t.Errorf("%q: %v counts as much as the word", c.query, terms[i])
			}
		}
	}
	for _, c := range []struct{ query, text string }{
		{"カラス", "ガラス"}, {"頭髮", "發頭"}, {"頭發", "頭髮"}, {"りんご", "リング"}, {"ㄓㄨ", "ㄓㄚ"}, {"東京", "京都"},
	} {
		q := recall.Question{Terms: a.Query(c.query)}
		if q.Held(recall.Counts(q.Terms, recall.Terms{Text: a.Terms(c.text)})) == recall.AllWords(q.Own()) {
			t.Errorf("%q holds all of %q", c.text, c.query)
		}
	}
}

// A query of many characters with several forms has a bounded number of terms.
func TestQuery_VariantsBounded(t *testing.T) {
	terms := recall.Shared().Query("台干后里发历复面系制余丑斗谷")
	own := len(slices.DeleteFunc(slices.Clone(terms), func(t recall.Term) bool { return t.Kind != recall.Whole }))
	if own < 13 || len(terms) > 9*own {
		t.Errorf("%d words, %d terms", own, len(terms))
	}
}
