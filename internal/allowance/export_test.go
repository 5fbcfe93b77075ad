package allowance

// IdleStep is how many bytes a peer moves that goes on.
const IdleStep = idleStep
