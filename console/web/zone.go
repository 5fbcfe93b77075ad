package web

import "time"

// Zone is the time zone in which the person reads times.
func (r *Request) Zone() *time.Location {
	if r.zone != nil {
		return r.zone
	}
	r.zone = time.UTC
	name := r.Session.Zone
	if cookie, err := r.Cookie("zone"); err == nil && name == "" {
		name = cookie.Value
	}
	if zone, err := time.LoadLocation(name); err == nil && len(name) < 64 && name != "Local" {
		r.zone = zone
	}
	return r.zone
}
