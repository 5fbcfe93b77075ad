// Package bleve is the recall index on one machine: Bleve indexes in the data folder, most of which
// small projects share.
//
// # Why it does not use Bleve's search
//
// The package writes through Bleve, and reads the postings of its segments itself, for three reasons:
//
//   - A search must score with recall.Weights, the function that ranks. What the index cuts off must
//     rank below what it keeps; the weights of Bleve's search
//     are not rounded, and its constants differ.
//   - Document frequencies must be those of one part of one project, although projects share an
//     index. Terms begin with a prefix of the project, so the length of a list is the frequency.
//   - A query has up to 64 words, each with the stems of several languages. Bleve scores every document
//     that contains any of them. BenchmarkSearch compares both.
//
// # Lists
//
// A search (search.go) needs the documents of each term in the fields of its part in each segment. To look a term up
// in a dictionary and to unpack its list takes longer than most searches in it, so a segment keeps the terms that
// are asked for again, also those that it does not have, within a bound (lists.go). A list is an
// array of numbers, or bits if it is long. It refers to no memory of the segment, and holds deleted documents: those do
// not pass the filter, and are subtracted from its length.
//
// # MaxScore
//
// Documents are scored in the order of their numbers (max_score.go). Each list has a bound: the most that
// it can add to a score. Lists are sorted by bound. Once the first lists together cannot
// reach the worst score of the current best (topK), they are non-essential: a document that is
// only in those is skipped, and they are only looked up for documents of the other lists, as long as
// such a document can still reach that score. The result is the same as without skipping.
//
// # Windows
//
// To go through lists side by side costs some ten nanoseconds for each place of a list. Where the essential lists
// together have many places, a window of documents is scored at a time instead: each list adds its weight
// to the sums of its documents, one after the other, and one pass compares what a sum can come to in a text of that
// length with the worst score of the current best. What passes is scored exactly. All lists take part, since a sum that
// lacks the common words lets too much pass. Where the lists have many places for the documents of the segment, the
// filter comes first, so that only documents that pass it get sums.
//
// # Spans
//
// If the lists of a search have many places and a processor is free, two goroutines take spans of the segments one
// after the other (search.go). Each keeps its own best, and the higher of their worst scores is the bound of both.
//
// What a filter, a score and a hit read of a document (audience, day, length, traits, what it states) is in columns
// (columns.go), read once per segment. Of equal scores the first by recallindex.Document.Order is kept: that
// is the frequency of the term of the document's part.
//
// # Space
//
// A term that occurs once in a text costs its place in the list. Frequencies are in a separate field, for
// terms that a text repeats. Lists, and the bytes that Bleve writes for each place in them, are packed
// (packing.go).
package bleve
