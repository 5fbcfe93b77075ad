package recall

import (
	"context"
	"math"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/internal/pg/switchover"
	"github.com/annals-project/annals/projections/directory"
)

// Pass is one recall. Its steps complete it, one after the other; once it has ended, it holds what each of them made.
type Pass struct {
	question
	Found    *candidates
	Ranking  *ranking
	Composed recall.Composed
	Page     Response

	service *Service
	// now is the time of the call. within is true if the snapshot begins with reading the reach.
	now    time.Time
	within bool
	reach  *directory.Reach
	// conn is the connection of the snapshot, nil until that begins; tables watches what the snapshot reads.
	conn   *pgxpool.Conn
	tables *switchover.Watch
	gate   *gate
	near   *nearest
	// searches is how many searches there were, wanted how many data points are authorized, most promising first.
	searches, wanted int
	texts            *texts
}

// How many candidates the first search asks for, by how much each further search asks for more, and
// how many searches there are at most.
const (
	firstSources  = 300
	firstMemories = 150
	searchGrowth  = 4
	maxSearches   = 4
)

// answer takes the steps, from the question to the documents. It takes those up to the composition again, with more
// candidates, if those that it has cannot fill the response. It calls finished, if that is not nil, in the snapshot.
func (p *Pass) answer(ctx context.Context, finished func(context.Context, *Pass) error) (err error) {
	defer func() { err = p.end(ctx, err) }()
	if err := p.analyse(ctx); err != nil {
		return err
	}
	find := p.byWords
	if p.AsksPeriod() {
		find = p.byPeriods
	}
	if err := find(ctx); err != nil {
		return err
	}
	if err := p.read(ctx); err != nil || finished == nil {
		return err
	}
	return finished(ctx, p)
}

// byWords chooses documents by the words and the meaning of the question.
func (p *Pass) byWords(ctx context.Context) error {
	p.near = p.service.startNearest(ctx, &p.question)
	defer p.near.stop()
	for {
		if err := p.search(ctx); err != nil {
			return err
		}
		if err := p.authorize(ctx); err != nil {
			return err
		}
		if p.wantsMore() {
			continue
		}
		if err := p.complete(ctx); err != nil {
			return err
		}
		p.rank()
		if err := p.compose(ctx); err != nil {
			return err
		}
		if p.isFull() {
			return nil
		}
		p.wanted = len(p.Found.Order) // consider all of them
	}
}

// analyse reads what the identity reaches, and analyses the question.
func (p *Pass) analyse(ctx context.Context) error {
	if err := p.readReach(ctx); err != nil {
		return err
	}
	p.question = p.service.newQuestion(p.Query, p.now)
	p.wanted = firstCandidates(p.most())
	return nil
}

// search searches the index, unless what it found is enough.
func (p *Pass) search(ctx context.Context) (err error) {
	if p.Found == nil {
		p.searches++
		p.Found, err = p.service.search(ctx, &p.question)
	}
	return err
}

// authorize looks up as many candidates as are wanted, in one snapshot. The first look-up begins it, with what words
// found, and the nearest are waited for after it, for at most as long as the finder takes.
func (p *Pass) authorize(ctx context.Context) error {
	if p.gate == nil {
		if err := p.openGate(ctx); err != nil {
			return err
		}
		first := min(p.wanted, len(p.Found.Order))
		if !p.HasSemantic() { // the order stays: one look-up is enough
			first = p.Found.withTies(first)
		}
		if err := p.gate.authorize(ctx, p.Found, first, !p.within); err != nil {
			return err
		}
		found, err := p.near.wait()
		if err != nil {
			return err
		}
		p.semantic = found
		p.Found.addSemantic(&p.question)
	}
	p.wanted = p.Found.withTies(min(p.wanted, len(p.Found.Order)))
	return p.gate.authorize(ctx, p.Found, p.wanted, false)
}

// openGate makes the gate of the pass.
func (p *Pass) openGate(ctx context.Context) error {
	if err := p.connect(ctx); err != nil {
		return err
	}
	p.gate = newGate(p.conn, p.Query, p.now)
	p.gate.replica, p.gate.reach, p.gate.tables = p.service.config.Replica, p.reach, p.tables
	return nil
}

// wantsMore reports whether more candidates are authorized before any is ranked: more of a small project, or all
// of a wider search if too few can be shown.
func (p *Pass) wantsMore() bool {
	all := len(p.Found.Order)
	if more := min(moreCandidates(p.most()), all); p.wanted < more && p.hasTime() {
		p.wanted = more
		return true
	}
	if p.wanted < all || p.searches >= maxSearches || !p.mayHoldMore(p.Found) || p.gate.passed() >= p.most() {
		return false
	}
	p.sources, p.memories = p.sources*searchGrowth, p.memories*searchGrowth
	p.Found, p.wanted = nil, math.MaxInt
	return true
}

// isFull reports whether the response is as full as it will be: more candidates would not be shown, or there are none.
func (p *Pass) isFull() bool {
	return p.Ranking.shown() >= p.most() || p.wanted == len(p.Found.Order)
}

// fewResults is up to which limit the same candidates are ranked, whatever the budget: a lower limit cuts the list, and
// changes no order.
const fewResults = 100

// most is for how many results candidates are ranked.
func (p *Pass) most() int { return max(p.Limit, fewResults) }

// firstCandidates is how many data points are authorized and ranked at first for a limit: some do
// not pass the gate, some do not fit the budget, and the index ranks differently.
func firstCandidates(limit int) int { return max(128, limit+limit/4) }

// moreCandidates is how many are authorized and ranked if that takes little time and a response holds many documents:
// in a project of at most fewPassages, if the first texts are short. The index would decide too much there.
func moreCandidates(limit int) int { return max(firstCandidates(limit), 2*limit+limit/2) }

// fewPassages is up to how many passages of a project a search is so fast that there is time to rank more.
const fewPassages = 10_000

// fewTokens is what the texts of the first candidates may cost in that case.
const fewTokens = 16_000

// hasTime reports whether there is time to rank more candidates than the first.
func (p *Pass) hasTime() bool {
	return p.Found.Sources.Statistics.Docs <= fewPassages && p.gate.tokens() < fewTokens
}
