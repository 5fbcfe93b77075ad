package annals

import "iter"

// pages yields the elements of page after page. read returns a page, with the cursor of the next one, nil for none.
func pages[T any](cursor string, read func(after string) ([]T, *string, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for after := cursor; ; {
			page, next, err := read(after)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, element := range page {
				if !yield(element, nil) {
					return
				}
			}
			if next == nil || *next == "" || *next == after { // a cursor that repeats would never end
				return
			}
			after = *next
		}
	}
}

// following returns the cursor of the next page, nil if there is none.
func following(hasMore bool, cursor *string) *string {
	if !hasMore {
		return nil
	}
	return cursor
}
