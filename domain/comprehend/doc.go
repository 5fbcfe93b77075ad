// Package comprehend derives memories from one revision of one data point with a fixed English grammar, without a
// model, and finds the periods that a question names.
//
// A memory is one readable line in the third person with the span of the text that proves it: "Ana's favourite editor
// is Helix". Extract reads texts, their labels and their metadata; NamedPeriods reads questions, in English, German,
// Spanish, French, Italian, Dutch and other languages, Chinese, Japanese and Korean among them.
//
// # Promises
//
//   - The result depends on the input only: the same input yields the same memories on every machine, always. A change
//     that alters memories changes the name of the Extractor.
//   - The grammar prefers missing a memory to inventing one: what no rule is sure of yields none.
//   - Extract takes time linear in its input, has the limits of the constants below, and never fails. Its tests read
//     hostile texts, and hold these laws for random ones.
//
// # What it does not do
//
// It reads claims in English alone; of other languages only the dates of questions. It reads one sentence at a time,
// and knows of the others who speaks and which words are names. It does no input or output.
//
// # Use
//
//	memories := comprehend.Extract(comprehend.Input{
//		DataPoint: id, Revision: 1, Author: "Bo",
//		Content: "Ana moved the launch to 3 June 2025. Never deploy on Fridays.", OccurredAt: time.Now(),
//	})
//	for _, m := range memories {
//		fmt.Println(m.Kind, m.Content, m.Excerpt) // rule: Never deploy on Fridays
//	}
//	asked := comprehend.Periods("What did Ana do last week?", time.Now())
//
// # Reading the code
//
// The content is cut into sentences (sentence.go) and clauses (clause.go, predicate.go). Dates (dates*.go, anchor.go),
// instructions (rule.go) and names (names.go) are read from a sentence; claims (claim*.go), events (event.go),
// identities and memberships (identity.go) from its clauses. third_person.go writes the line of a memory. Label and
// metadata are read by metadata.go. The dates of questions are read by dates_question.go and dates_calendar*.go.
//
// # Formats
//
// Package memory has the type of a memory with its JSON, and the table of kinds; docs/concepts.md explains them.
// testdata/labelled.txt has texts with the memories that they must yield.
//
// # Figures
//
// Of the memories of 537 labelled texts 99.4 to 100 % are right, for each kind, and 94 to 100 % of what a person finds
// is found (TestLabelled). 10 KiB take about 4 ms of processor time and 0.9 MB (BenchmarkExtract).
//
// Besides the standard library it uses google/uuid (ids), clipperhouse/uax29 (sentence boundaries), x/text (normal
// forms) and kljensen/snowball (stems, to compare claims). The last three are pure functions over tables.
package comprehend
