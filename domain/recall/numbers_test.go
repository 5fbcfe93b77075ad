package recall_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/annals-project/annals/domain/recall"
)

// TestNumbers: spellings of one number or id meet: the query asks for a term of the text, the one that is named.
func TestNumbers(t *testing.T) {
	a := recall.NewAnalyzer()
	for _, c := range []struct{ term, spellings string }{
		{"40000", "40,000|40000|40 000|40'000|40’000|40\u00a0000|40\u2009000|40\u202f000|40.000|٤٠٠٠٠|４０，０００"},
		{"1234567", "1,234,567|1.234.567|1 234 567|1'234'567|1234567"},
		{"1234.56", "1.234,56|1,234.56|1234.56|1 234,56|1'234.56|1234,56"},
		{"1234", "1.234|1234|1,234"},
		{"1.234", "1.234"},
		{"0.125", "0.125"},
		{"491701234567", "+49 170 123 4567|+491701234567|+49 (170) 123-4567|+49 170/1234567|491701234567|+49-170-123-4567"},
		{"5551234", "555-1234|555 1234|5551234"},
		{"p40", "P40|P-40|p-40|P_40"},
		{"ab12907", "AB-12-907|ab12907|AB12-907"},
		{"billingjob", "BillingJob|billingJob|billing_job|BILLING_JOB|billingjob"},
		{"$40000", "$40,000|$40000|40 000 $|$ 40,000|US$40,000"},
		{"€1234", "€1.234|1.234 €|€1,234"},
		{"€4.50", "4,50 €|€4.50"},
		{"c++", "C++|c++|Ｃ＋＋"},
		{"c#", "C#|C♯|c#"},
		{".net", ".NET|.net"},
		{"covid19", "COVID-19|Covid19"},
		{"1.10.2", "v1.10.2|1.10.2"},
	} {
		for spelling := range strings.SplitSeq(c.spellings, "|") {
			text, query := a.Terms("It is "+spelling+" here."), wholes(a.Query(spelling))
			if !slices.Contains(text, c.term) || !slices.Contains(query, c.term) {
				t.Errorf("%q: %q is not in the terms %q or the query %q", spelling, c.term, text, query)
			}
		}
	}
}

func TestNumbers_Parts(t *testing.T) {
	a := recall.NewAnalyzer()
	for _, c := range []struct{ query, without string }{
		{"40,000", "40 000"},
		{"1.234,56", "1 234 56"},
		{"40'000", "40 000"},
		{"C++ C#", "c"},
		{"10.0.1.12", "1001.12 100112"},
		{"10 30", "1030"},
		{"12:30:45 67", "12304567"},
		{"1 2 3 4 5 6 7 8 9 10 11 12 13 14", "1234567"},
		{"3f2a91c4", "3 f 2 a 91"},
		{"PDFs", "fs"},
	} {
		for _, term := range a.Query(c.query) {
			if slices.Contains(strings.Fields(c.without), term.Text) {
				t.Errorf("%q asks for %q", c.query, term.Text)
			}
		}
	}
	for query, with := range map[string]string{
		"HTTPServer": "httpserver http server", "maxBatchRows": "maxbatchrows max batch rows", "PDFs": "pdfs pdf",
		"NullPointerException": "nullpointerexception null pointer exception", "P40": "p40 p 40", "iPhone을": "iphone을 phone 을",
	} {
		asked := wholes(a.Query(query))
		for word := range strings.FieldsSeq(with) {
			if !slices.Contains(asked, word) {
				t.Errorf("%q asks for %q without %q", query, asked, word)
			}
		}
	}
}

// TestApart: pairs that are not the same have terms of their own, so that neither is found as well by the other's.
func TestApart(t *testing.T) {
	a := recall.NewAnalyzer()
	for pair := range strings.SplitSeq("ガラス カラス|C C++|C C#|C++ C#|F F#|AB-12-907 AB-12-709|v1.10.2 v1.2.10|10.0.1.12 10.0.11.2|"+
		"AB-12-907 AB-129-07|40,000 4,000|ハハ パパ|กา ก้า|เสือ เสื้อ|कि की|$40 €40|1.234,56 12.345,6|हिन्दि हिन्दी", "|") {
		x, y, _ := strings.Cut(pair, " ")
		for _, p := range [][2]string{{x, y}, {y, x}} {
			asked, terms := a.Query(p[0]), a.Terms(p[1])
			if !slices.ContainsFunc(asked, func(q recall.Term) bool { return !slices.Contains(terms, q.Text) }) {
				t.Errorf("all of %q is in %q", p[0], p[1])
			}
		}
	}
}
