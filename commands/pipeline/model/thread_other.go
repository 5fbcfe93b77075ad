//go:build !linux

package model

import "time"

// threadTime returns 0: how long the thread has used a processor is unknown.
func threadTime() time.Duration { return 0 }
