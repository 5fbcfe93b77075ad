package hostile

import (
	"fmt"
	"time"
)

// Sizes are the sizes of the attacks.
type Sizes struct {
	Moves       int           `name:"moves" default:"200" help:"Documents of 2 MiB to move to another audience and back."`
	Deletions   int           `name:"deletions" default:"100000" help:"Data points to delete, in bulk deletions of 1,000."`
	Rules       int           `name:"rules" default:"60" help:"Rule audiences with a thousand values each, to recompute."`
	Identities  int           `name:"identities" default:"20000" help:"Identities that the rules are computed over."`
	Resends     int           `name:"resends" default:"200000" help:"Times that one id is sent."`
	Connections int           `name:"connections" default:"500" help:"Slow connections to hold."`
	Metadata    int           `name:"metadata" default:"200" help:"Data points with 1 MiB of metadata to recall."`
	Traits      int           `name:"traits" default:"500" help:"Identities with as many traits as are allowed, to list."`
	Texts       int           `name:"texts" default:"5000" help:"Texts that are hard to read a meaning into."`
	Projects    int           `name:"projects" default:"300" help:"Projects to write to at once."`
	Revisions   int           `name:"revisions" default:"100000" help:"Revisions of the data point that is deleted; a tenth of them are traced."`
	Hold        time.Duration `name:"hold" default:"60s" help:"How long what is held or repeated is held or repeated."`
	Scale       float64       `name:"scale" default:"1" help:"Part of all these sizes, above 0, at most 1: less for a try."`
}

// Validate checks the sizes.
func (s *Sizes) Validate() error {
	if s.Scale <= 0 || s.Scale > 1 {
		return fmt.Errorf("--scale is %v: want above 0, at most 1", s.Scale)
	}
	for _, n := range []int{
		s.Moves, s.Deletions, s.Rules, s.Identities, s.Resends, s.Connections, s.Metadata, s.Traits, s.Texts, s.Projects,
		s.Revisions,
	} {
		if n < 1 || n > 10_000_000 {
			return fmt.Errorf("a size is %d: want 1 to 10,000,000", n)
		}
	}
	if s.Hold <= 0 || s.Hold > 10*time.Minute {
		return fmt.Errorf("--hold is %v: want at most 10m", s.Hold)
	}
	return nil
}

// Scaled returns the sizes times their scale, each at least 1.
func (s Sizes) Scaled() Sizes {
	for _, n := range []*int{
		&s.Moves, &s.Deletions, &s.Rules, &s.Identities, &s.Resends, &s.Connections, &s.Metadata, &s.Traits, &s.Texts,
		&s.Projects, &s.Revisions,
	} {
		*n = max(int(float64(*n)*s.Scale), 1)
	}
	s.Hold = max(time.Duration(float64(s.Hold)*s.Scale), 2*time.Second)
	s.Scale = 1
	return s
}
