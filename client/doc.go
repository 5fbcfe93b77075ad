// Package annals calls an Annals memory service: it sends timestamped text, and recalls it as ranked documents with the
// excerpts that prove them.
//
//	client, err := annals.New("https://memory.example.com", os.Getenv("ANNALS_PROJECT_KEY"))
//	if err != nil {
//		return err
//	}
//	receipt, err := client.Ingest(ctx, annals.DataPoint{Content: "Ana moved the launch to 3 June.", Identity: "ana"})
//	if err != nil {
//		return err
//	}
//	if _, err := client.WaitIngestion(ctx, receipt.IngestionID); err != nil {
//		return err
//	}
//	response, err := client.Recall(ctx, annals.RecallRequest{Query: "When is the launch?", Identity: "ana"})
//
// A [Client] is made once with one key, and is safe for concurrent use. It needs nothing but the standard library.
//
// # Calls
//
// Every route of the API is a method with the name of its operation in the API document. A zero field of a request is
// omitted, so that the default of the service applies. A field of a response that can be null is a pointer. Times of
// requests are ISO 8601 text, since a date alone and an offset have a meaning of their own; [time.RFC3339Nano] is the
// format of an instant. Credits are of type [encoding/json.Number], since they are counted in tenths.
//
// The values of an enumeration can grow with the service: treat an unknown one as the text of the field describes.
//
// # Lists
//
// A list is an [iter.Seq2] that reads page after page: [Client.Identities], [Client.Audiences], [Client.Projects],
// [Client.Requests], [Client.MemoryRoots] and [Client.SourceRoots]. An error is its last element. The methods that
// begin with List return one page.
//
// # Errors
//
// A refusal by the service is an [*APIError]. Match on its Code, such as [CodeOutOfCredits]:
//
//	var refused *annals.APIError
//	if errors.As(err, &refused) && refused.Code == annals.CodeAudienceUnknown {
//		…
//	}
//
// A call without an answer is a [*ConnectionError]: what became of it is not known. No error contains the key.
//
// # Repeats
//
// A call that failed for a while is repeated, with pauses that grow and differ at random, until it is answered, its
// context ends, or its time is over ([WithTimeout]). If the service names a pause (Retry-After), that is kept; a pause
// beyond the time that is left ends the call at once. What is repeated depends on what a second attempt does:
//
//   - Reads, PUT, the estimate, and an ingest, which carries an idempotency key: after a broken connection, 502, 503,
//     504, and a 429 that names no cap.
//   - DELETE as well. If the answer to an attempt was lost, a 404 to the next one counts as done.
//   - [Client.Recall] after a 503 only, since a recall is charged.
//   - All other calls only if no connection was made.
//
// Caps and spent credits are returned at once.
package annals
