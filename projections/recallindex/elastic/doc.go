// Package elastic is the recall index in an Elasticsearch 8, which all processes share.
//
// # How it scores
//
// A search must choose its candidates by recall.Weights, the function that ranks, and with document
// frequencies of one part of one project. BM25 of Elasticsearch does neither: its frequencies are
// those of a shard. So the package uses Elasticsearch as an index of impacts:
//
//   - What a term adds to the score of a text depends on the query only by one factor. The other
//     factor, recall.Impact, is stored with the term in a sparse vector. A query for a term with the
//     factor as its boost returns the product, and Lucene skips what cannot be among the best.
//   - Terms begin with a prefix of the part of the project, so the length of a list is the frequency.
//
// A sparse vector keeps nine bits of a number and cuts off the rest: a score is up to 0.4 % too low.
// So a search fetches more candidates than it returns, and scores them exactly by the terms in their
// source. If many documents lie within that error of the worst result, some of the last results may
// have a score that is by as much too low.
//
// A search is two requests: one for the statistics, one for the candidates, to the same copy of the
// same shard. A refresh in between makes the statistics one page older than the candidates.
//
// # Names
//
// Of an index called annals, a generation is the index annals-<format>-<number>, whose mapping names
// its id. These aliases belong to it:
//
//	annals            the generation in use
//	annals-read       the same, once it is complete: searches go here
//	annals-next       the shadow, if there is one
//	annals-w-<id>     one generation: writes go here, so that none creates an index, or reaches another
//
// All processes search the generation in use. The holder of the projection's lease writes. A holder
// that lost its lease without noticing may still write: each document has the position of its page as
// external version, so an older page changes nothing that a newer one wrote.
package elastic
