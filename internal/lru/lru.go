// Package lru makes the bounded caches of the service. A cache that is bounded by something else
// than its entries, such as bytes or open files, stays with what it caches.
package lru

import "github.com/hashicorp/golang-lru/v2/simplelru"

// Map is a map that evicts the entry that was used longest ago. It has no lock.
type Map[K comparable, V any] = simplelru.LRU[K, V]

// New makes a map of at most size entries. It panics if size is not positive.
func New[K comparable, V any](size int) *Map[K, V] {
	m, err := simplelru.NewLRU[K, V](size, nil)
	if err != nil {
		panic(err)
	}
	return m
}
