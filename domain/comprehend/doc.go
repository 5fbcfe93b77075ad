// Package comprehend derives memories from one revision of one data point with a fixed English
// grammar, without a model.
//
// The result depends on the input only: the same input yields the same memories on every machine,
// always. The grammar prefers missing a memory to inventing one: what no rule is sure of stays in
// the verbatim source, which is recalled anyway.
//
// Start with Extract. The content is cut into sentences (sentence.go) and clauses (clause.go).
// Dates (dates*.go, anchor.go), instructions (rule.go) and names (names.go) are read from a
// sentence; claims (claim*.go), events (event.go), identities and memberships (identity.go) from
// its clauses. third_person.go writes the line of a memory. Label and metadata are read by
// metadata.go. The dates of questions are read by Periods (dates_question.go).
//
// Besides the standard library and google/uuid it uses clipperhouse/uax29 (sentence boundaries) and
// kljensen/snowball (stems, to compare claims). Both are pure functions over tables.
package comprehend
