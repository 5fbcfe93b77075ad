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
// # MaxScore
//
// A search (search.go) opens one list of documents per term, field and segment (posting.go), and
// scores documents in the order of their numbers (max_score.go). Each list has a bound: the most that
// it can add to a score (impact.go). Lists are sorted by bound. Once the first lists together cannot
// reach the worst score of the current best (top_k.go), they are non-essential: a document that is
// only in those is skipped, and they are only looked up for documents of the other lists, as long as
// such a document can still reach that score. The result is the same as without skipping.
//
// # Windows
//
// An iterator costs some ten nanoseconds for each place of a list. Where the essential lists together have many
// places, a window of documents is scored at a time instead (windows.go): each list adds its weight to the sums
// of its documents, one after the other, and one pass compares what a sum can come to in a text of that length
// with the worst score of the current best. What passes is scored exactly. All lists take part, since a sum that
// lacks the common words lets too much pass.
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
