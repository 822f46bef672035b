import { BudgetError, DefectError, UsageError } from '../base/errors.js';
import type { AllocationRequest, Allocator, DeviceBuffer } from './buffers.js';
import type { HoldCause } from './causes.js';
import type { Ledger } from './ledger.js';

/** A named part of what a run holds. */
export interface BudgetComponent {
  readonly label: string;
  readonly cause: HoldCause;
  readonly bytes: number;
}

/** Throws `UsageError` `bad-budget` unless a budget is a non-negative whole number of bytes, or `Infinity`. */
export function requireBudget(budgetBytes: number): void {
  if (budgetBytes !== Infinity && (!Number.isSafeInteger(budgetBytes) || budgetBytes < 0)) {
    throw new UsageError(
      'bad-budget',
      `Cannot use a budget of ${budgetBytes} bytes: a budget is a non-negative whole number of bytes`,
      { budgetBytes: String(budgetBytes) },
    );
  }
}

/** Bytes of a list of components. */
export function componentBytes(components: readonly BudgetComponent[]): number {
  return components.reduce((sum, component) => sum + component.bytes, 0);
}

/** For messages: `kv 4096, activations 512`. */
export function listComponents(components: readonly BudgetComponent[]): string {
  return components.map(({ label, bytes }) => `${label} ${bytes}`).join(', ');
}

/**
 * An allocator that keeps a promise: every byte is charged to the ledger, and what would pass the budget is refused
 * before it is allocated, with every component's bytes. All allocators of a session share its ledger.
 */
export class BudgetedAllocator implements Allocator {
  readonly ledger: Ledger;
  readonly budgetBytes: number;
  readonly #inner: Allocator;
  /** Held buffers with the components that they are charged as. */
  readonly #buffers = new Map<DeviceBuffer, readonly BudgetComponent[]>();
  readonly #reserved = new Map<string, BudgetComponent>();

  constructor(inner: Allocator, budgetBytes: number, ledger: Ledger) {
    requireBudget(budgetBytes);
    this.#inner = inner;
    this.budgetBytes = budgetBytes;
    this.ledger = ledger;
  }

  /** Throws `BudgetError` `budget-exceeded`. */
  allocate({ label, cause, byteLength }: AllocationRequest): DeviceBuffer {
    return this.allocateParts(label, [{ label, cause, bytes: byteLength }]);
  }

  /** One buffer that holds bytes of several causes, charged part by part. */
  allocateParts(label: string, parts: readonly BudgetComponent[]): DeviceBuffer {
    const byteLength = componentBytes(parts);
    const cause = parts[0]?.cause;
    if (cause === undefined) throw new DefectError(`Cannot allocate "${label}": it has no parts`);
    this.#requireRoom(label, byteLength);
    const buffer = this.#inner.allocate({ label, cause, byteLength });
    for (const part of parts) this.ledger.hold(part.cause, part.bytes);
    this.#buffers.set(buffer, parts);
    return buffer;
  }

  release(buffer: DeviceBuffer): void {
    const parts = this.#buffers.get(buffer);
    if (parts === undefined) {
      throw new DefectError(`Cannot release "${buffer.label}": it is not held by this allocator`);
    }
    this.#buffers.delete(buffer);
    this.#inner.release(buffer);
    for (const part of parts) this.ledger.release(part.cause, part.bytes);
  }

  /** Charges bytes that live outside the backend (an index in JavaScript memory). Throws as `allocate` does. */
  reserve(component: BudgetComponent): void {
    if (this.#reserved.has(component.label)) {
      throw new DefectError(`Cannot reserve "${component.label}" twice`);
    }
    this.#requireRoom(component.label, component.bytes);
    this.ledger.hold(component.cause, component.bytes);
    this.#reserved.set(component.label, component);
  }

  unreserve(label: string): void {
    const component = this.#reserved.get(label);
    if (component === undefined) throw new DefectError(`Cannot give back "${label}": it is not reserved`);
    this.#reserved.delete(label);
    this.ledger.release(component.cause, component.bytes);
  }

  /** What is held now, one entry a label. */
  components(): BudgetComponent[] {
    const byLabel = new Map<string, BudgetComponent>(this.#reserved);
    for (const { label, cause, bytes } of [...this.#buffers.values()].flat()) {
      byLabel.set(label, { label, cause, bytes: bytes + (byLabel.get(label)?.bytes ?? 0) });
    }
    return [...byLabel.values()];
  }

  #requireRoom(label: string, bytes: number): void {
    const held = this.ledger.totalHeld;
    if (held + bytes <= this.budgetBytes) return;
    const components = this.components();
    throw new BudgetError(
      'budget-exceeded',
      `Cannot hold ${bytes} bytes for "${label}": ${held} of ${this.budgetBytes} bytes are held (${listComponents(components)})`,
      { budgetBytes: this.budgetBytes, heldBytes: held, requestedBytes: bytes, label, components },
    );
  }
}
