/** What limits a figure; a value beside it, printed as its footnote. */
export interface Warning {
  readonly code:
    | 'too-few-pairs'
    | 'pairs-left-out'
    | 'zero-variance'
    | 'outlier'
    | 'order-effect'
    | 'order-not-separable'
    | 'bootstrap-narrow'
    | 'sequential';
  readonly text: string;
}
