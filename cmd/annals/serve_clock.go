package main

import "time"

// now is what time it is for the service, in UTC at microsecond precision. What is only measured, such as how long a lease or a
// minute of calls lasts, goes by the clock of the machine.
func (p *process) now() time.Time { return instantOf(p.clock) }

// now is what time it is without a service.
func now() time.Time { return instantOf(time.Now) }

// instantOf reads a clock as the log keeps times.
func instantOf(clock func() time.Time) time.Time { return clock().UTC().Truncate(time.Microsecond) }
