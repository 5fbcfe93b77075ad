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
// records. If many documents lie within that error of the worst result, some of the last results may
// have a score that is by as much too low.
//
// A search is two requests, whatever its size: one for the statistics of both parts, one for their candidates, to
// the same copy of the same shard. A refresh in between makes the statistics one page older than the candidates.
//
// What a candidate returns is its record, a doc value. To return ids or sources, Elasticsearch
// would unpack a block of the stored fields for every candidate: that took most of the time of a
// search with several hundred candidates. Records are most of the index, so they are packed (pack_terms.go).
//
// Candidates are sorted by score, and of equal scores by recallindex.Document.Order. If more documents have
// equal scores than a search fetches, scores that Elasticsearch rounds differently may cut them off
// differently.
//
// # What a search sees of a page
//
// A page is deletes, then writes, then moves, each visible as soon as Elasticsearch refreshes: at the
// end of the page, between two rounds of a large delete or move, and rarely by itself. So a search
// may see a part of a page. A page that fails in between is applied again whole. What can be wrong
// meanwhile is what may be wrong of any index that lags the log:
//
//   - A document is missing that its page will write: recall misses a candidate for a moment. No
//     send is reported as searchable by then, because the checkpoint of the page comes after its last refresh.
//   - A document is there that its page will delete, or has the audience of before: the gate of recall
//     reads what is true now from Postgres, and drops it.
//   - A count is off by the documents of one page, and with it a weight, which is rounded.
//
// # Servers
//
// Of several addresses the next one gets the next request. One that does not answer gets none for a
// minute, then for longer, and its request goes to the next one, unless that could make it twice: what
// creates an index or moves aliases is sent again only if no server got it. All must be of one cluster.
//
// # Names
//
// Of an index called annals, a generation is the index annals-<format>-<number>, whose mapping names
// its id and the version of its analysis. These aliases belong to it:
//
//	annals-<format>        the generation in use
//	annals-<format>-next   the shadow, if there is one
//	annals-r-<id>          the generation in use, once it is complete: searches go here
//	annals-w-<id>          one generation: writes go here, so that none creates an index, or reaches another
//
// A generation of another analysis answers queries of that until one of the newest is put into use. An
// index of a format before is removed, and a new one is built from the log.
//
// All processes search the generation in use. When another one is put into use, the alias for searches
// of the one before is gone: a process whose search finds nothing there looks which one it is now. The
// holder of the projection's lease writes. A holder that lost its lease without noticing may still
// write: each document has the position of its page as external version, so an older page changes
// nothing that a newer one wrote. It sends no request after its lease (projections.CheckLease), and a
// deleted document keeps its version for longer than such a request is under way (gcDeletes).
package elastic
