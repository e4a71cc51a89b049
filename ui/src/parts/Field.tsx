import { Search, X } from "lucide-react";
import { type ComponentProps, type ReactNode, type Ref, useId } from "react";
import styles from "./Field.module.css";

type InputProps = Omit<ComponentProps<"input">, "className" | "id">;

/** A field with its name above it. */
export function Field({ label, hint, ...rest }: InputProps & { label: string; hint?: ReactNode }): ReactNode {
  const id = useId();
  return (
    <div className={styles.field}>
      <label htmlFor={id}>{label}</label>
      <input id={id} className={styles.input} autoComplete="off" spellCheck={false} {...rest} />
      {hint && <p className="quiet small">{hint}</p>}
    </div>
  );
}

interface SearchProps {
  label: string;
  placeholder: string;
  value: string;
  onChange: (value: string) => void;
  inputRef?: Ref<HTMLInputElement>;
}

export function SearchField({ label, placeholder, value, onChange, inputRef }: SearchProps): ReactNode {
  return (
    <div className={styles.search}>
      <Search size={14} aria-hidden="true" />
      <input
        ref={inputRef}
        className={styles.input}
        type="search"
        aria-label={label}
        placeholder={placeholder}
        value={value}
        autoComplete="off"
        spellCheck={false}
        onChange={(event) => onChange(event.target.value)}
        onKeyDown={(event) => {
          if (event.key !== "Escape") return;
          event.preventDefault(); // the browser would empty the field
          event.currentTarget.blur();
        }}
      />
      {value && (
        <button type="button" aria-label="Clear search" onClick={() => onChange("")}>
          <X size={14} />
        </button>
      )}
    </div>
  );
}

interface SelectProps<T extends string> {
  label: string;
  value: T;
  options: readonly (readonly [T, string])[];
  onChange: (value: T) => void;
}

/** One of a few: the browser's own, which every keyboard and screen reader knows. */
export function Select<T extends string>({ label, value, options, onChange }: SelectProps<T>): ReactNode {
  return (
    <select
      className={styles.select}
      aria-label={label}
      value={value}
      onChange={(event) => onChange(event.target.value as T)}
    >
      {options.map(([name, text]) => (
        <option key={name} value={name}>
          {text}
        </option>
      ))}
    </select>
  );
}

interface ChipsProps<T extends string> {
  label: string;
  chosen: readonly T[];
  options: readonly (readonly [T, ReactNode])[];
  onChange: (chosen: T[]) => void;
}

/** Any of a few, all in sight. */
export function Chips<T extends string>({ label, chosen, options, onChange }: ChipsProps<T>): ReactNode {
  return (
    <div className={styles.chips} role="group" aria-label={label}>
      {options.map(([name, text]) => {
        const on = chosen.includes(name);
        return (
          <button
            key={name}
            type="button"
            className={styles.chip}
            aria-pressed={on}
            onClick={() => onChange(on ? chosen.filter((one) => one !== name) : [...chosen, name])}
          >
            {text}
          </button>
        );
      })}
    </div>
  );
}
